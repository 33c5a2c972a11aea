"""One call of an endpoint as the proxy has read it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from gateway.contracts.snapshot import ApiKeyEntry
from gateway.peers.regions.forward_server import ForwardedCall
from gateway.pools.services.named_service import NamedService
from gateway.requests.caller_facts import CallerFacts
from gateway.requests.formats.audio_form import read_form
from gateway.requests.formats.endpoints import Endpoint
from gateway.server.http.http_exchange import Exchange
from gateway.server.http.json_body import read_object_in_turns
from gateway.server.http.large_body import HeldBody
from gateway.server.http.openai_error import ApiError

if TYPE_CHECKING:
    from gateway.pools.pool.live_pool import LivePool
    from gateway.pools.pool.recent_decisions import DecisionRecord
    from gateway.pools.pool.service import Service
    from gateway.proxy.forwarded_request import ForwardedRequest
    from gateway.proxy.request_spans import RequestSpans
    from gateway.requests.formats.prompt import Prompt
    from gateway.requests.gateway_request import GatewayRequest


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
    facts: CallerFacts
    """The caller's facts in headers and body."""
    arrived_s: float
    """Monotonic time of the first contact."""
    forwarded: ForwardedCall | None = None
    """It comes from another region's gateway, which has authenticated the caller."""
    spans: RequestSpans | None = None
    renamed: bool = False
    """Whether `body` has another name of the model than `original`, which named a service."""

    def in_pool(self, pool: LivePool, service: Service) -> ApiCall:
        """Return the call with the pool's name of the model if it names a service; raise ApiError for a form."""
        served_model = pool.entry.served_model
        if not isinstance(service, NamedService) or self.body["model"] == served_model:
            return self
        if self.endpoint.is_form:
            text = f"Engines take forms unchanged, and this service has another name; send the model {served_model}."
            raise ApiError(501, text, "service_takes_no_form")
        return msgspec.structs.replace(self, body={**self.body, "model": served_model}, renamed=True)


class RoutedCall(msgspec.Struct, kw_only=True):
    """A call in the terms of one pool.

    Mutable: `asked` and `request` get the prompt's keys once known; `record` and `retried` follow its attempts.
    """

    call: ApiCall
    pool: LivePool
    asked: GatewayRequest
    request: ForwardedRequest
    prompt: Prompt
    domain: str
    """Isolation domain of the prompt's blocks; empty: shared."""
    record: DecisionRecord | None = None
    retried: bool = False
    """Whether it has used the retry budget."""
    hold: bool = True
    """Whether it waits for an engine if the pool has none."""


async def read_body(endpoint: Endpoint, body: bytes, exchange: Exchange) -> tuple[dict[str, Any], HeldBody | None]:
    """Return (fields of a body, media held apart from them); raise BadBodyError."""
    if endpoint.is_form:
        return await read_form(body, exchange.head.headers.get(b"content-type", b"")), None
    return await read_object_in_turns(body)
