"""One call of an endpoint as the proxy has read it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from gateway.contracts.snapshot import ApiKeyEntry
from gateway.formats.audio_form import read_form
from gateway.formats.endpoints import Endpoint
from gateway.http.http_exchange import Exchange
from gateway.http.json_body import read_object_in_turns
from gateway.http.large_body import HeldBody

if TYPE_CHECKING:
    from gateway.proxy.request_spans import RequestSpans


class ApiCall(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of a call that are the same for every pool, region and engine."""

    exchange: Exchange
    endpoint: Endpoint
    caller: ApiKeyEntry
    decision_id: str
    original: bytes
    """The body as received."""
    held: HeldBody | None = None
    """Media held apart from `body`, which has their names instead; None: none."""
    body: dict[str, Any]
    arrived_s: float
    """Monotonic time of the first contact."""
    spans: RequestSpans | None = None


async def read_body(endpoint: Endpoint, body: bytes, exchange: Exchange) -> tuple[dict[str, Any], HeldBody | None]:
    """Return (fields of a body, media held apart from them); raise BadBodyError."""
    if endpoint.is_form:
        return await read_form(body, exchange.head.headers.get(b"content-type", b"")), None
    return await read_object_in_turns(body)
