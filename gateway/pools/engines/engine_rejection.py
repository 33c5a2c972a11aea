"""Error answers that concern the engine, not the request: other engines are tried before the client gets one.

With a wrong key, an unloaded model or a full queue, an engine rejects immediately, and then appears idle. Faults of the
request itself (400, 422, 501) are the same everywhere and are relayed. A 5xx that all engines give is also relayed:
some engines answer 500 to a prompt that is too long.

An engine at its limit answers 429, or 503 as vLLM does (`--max-num-queued-reqs`): it is busy, not broken. A broken
engine reports so to its health probe.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from gateway.pools.engines.breaker import HTTP_4XX, HTTP_5XX, THROTTLED
from gateway.server.http.http_exchange import Header

BUSY = frozenset({429, 503})
REJECTIONS = frozenset({401, 403, 404, 408, 425})
OWN_FAULTS = frozenset({501, 505})
"""The 5xx codes that HTTP reserves for faults of the request (RFC 9110, §15.6)."""
MAX_BODY_BYTES = 64 << 10
_PASSED_HEADERS = ("cache-control", "retry-after")
_PLAIN_TYPE = re.compile(
    r"(application/(json|problem\+json|x-ndjson|jsonl|octet-stream)|text/(event-stream|plain)"
    r"|(audio|video)/[\w.+-]{1,64}|image/(?!svg)[\w.+-]{1,64})"
    r"(\s*;\s*[\w-]{1,32}=([\w.:/+-]{1,64}|\"[\w .:/+-]{0,64}\"))*",
    re.ASCII | re.IGNORECASE,
).fullmatch
"""Content types that no browser treats as a page or a script."""


def blame_of(status: int) -> str:
    """Return the breaker's cause for an error that may be the engine's fault, empty for a fault of the request."""
    if status in BUSY:
        return THROTTLED
    if status in REJECTIONS:
        return HTTP_4XX
    return HTTP_5XX if status >= 500 and status not in OWN_FAULTS else ""


class EngineRejection(msgspec.Struct, frozen=True):
    """One such answer, kept for the client in case all engines give it."""

    status: int
    body: bytes
    headers: list[Header]
    pause_s: float | None = None
    """Seconds of the Retry-After header; None: missing or unreadable."""


def rejection_of(status: int, headers: Mapping[str, str], body: bytes) -> EngineRejection:
    """Return the answer as a rejection."""
    passed = passed_headers(headers)
    if status in BUSY and "retry-after" not in headers:
        passed.append((b"retry-after", b"1"))
    return EngineRejection(status, body, passed, _pause_s(headers))


def passed_headers(headers: Mapping[str, str]) -> list[Header]:
    """Return the headers of an engine's answer that are forwarded to the client.

    The answer is served from the console's origin, so content that a browser would display or run gets a binary content
    type.
    """
    kind = headers.get("content-type", "")
    return [
        (b"content-type", kind.encode() if _PLAIN_TYPE(kind) else b"application/octet-stream"),
        *(
            # They were decoded in this way, here and by aiohttp.
            (name.encode(), headers[name].encode("utf-8", "surrogateescape"))
            for name in _PASSED_HEADERS
            if name in headers
        ),
    ]


def is_encoded(headers: Mapping[str, str]) -> bool:
    """Return whether the engine encoded its answer. Encoding was not requested and is not decoded here."""
    return headers.get("content-encoding", "identity").strip().lower() not in ("identity", "")


def _pause_s(headers: Mapping[str, str]) -> float | None:
    text = headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() and len(text) <= 6 else None
