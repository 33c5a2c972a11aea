"""Synchronous fast path for decisions that need no waiting: answered while the request is parsed, without a task.

The HTTP protocol offers it complete `POST /api/v1/route` requests. The headers are admitted first: the edge checks them
as it checks all others, and the app identifies the caller. A client on one connection sends the same headers again and
again, so an admission may be used for further requests whose head is byte for byte the same. A declined request takes
the ordinary way through ASGI as if the fast path did not exist, so the fast path may decline whatever is rare.

Its gain, by `python -m bench.gateway.decision_api` with and without it: a decision costs 1.8 times the CPU of a null
app's answer, and 4.0 to 4.6 times the ordinary way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from gateway.http.request_head import RequestHead

if TYPE_CHECKING:
    from gateway.contracts.snapshot import ApiKeyEntry, Snapshot

PATH = b"/api/v1/route"
NO_WAIT = b"wait=false"
"""The query with the meaning of the body's field, for proxies that pass a client's body on unchanged."""
TARGETS = frozenset((PATH, PATH + b"?" + NO_WAIT))
"""Paths, each with its query, that the fast path takes."""
ORIGINAL_PATH = b"x-original-uri"
"""The header in which a proxy names the path of its client's request, which determines how the body is read."""
MAX_BODY_BYTES = 64 * 1024

Headers = Sequence[tuple[bytes, bytes]]


class FastAnswer(msgspec.Struct, frozen=True, gc=False):
    """One complete response; the sender adds Content-Length."""

    status: int
    head: bytes
    """Header lines as they are sent, each with its line end."""
    body: bytes


def header_lines(headers: Headers) -> bytes:
    """Return the headers in wire form."""
    return b"".join([b"%s: %s\r\n" % header for header in headers])


class KnownHead(msgspec.Struct, frozen=True, gc=False):
    """Admitted headers: their caller, and the snapshot under which they were admitted."""

    caller: ApiKeyEntry
    snapshot: Snapshot | None
    waits: bool = True
    """Whether the request may be queued, unless its body says otherwise."""
    original_path: bytes = b""
    """Content of the ORIGINAL_PATH header."""


class InnerFastPath(Protocol):
    """An app behind the edge that answers decisions at once; GatewayApp is one."""

    @property
    def new_id(self) -> Callable[[], str]:
        """Makes the ids of its requests."""
        ...

    def admit(self, target: bytes, head: RequestHead) -> KnownHead | None:
        """Return the caller of one of TARGETS; None where the ordinary way has to check more."""
        ...

    def answer_at_once(self, admission: KnownHead, body: bytes) -> FastAnswer | None:
        """Answer a request with these headers, or decline it with None."""
        ...


class FastPath(Protocol):
    """Interface that the protocol calls; the edge implements it."""

    def admit(self, target: bytes, headers: Headers) -> KnownHead | None:
        """Check headers (names in lower case) to one of TARGETS; None: the request takes the ordinary way."""
        ...

    def answer_at_once(self, admission: KnownHead, body: bytes) -> FastAnswer | None:
        """Answer a request with these headers, or decline it with None."""
        ...


def fast_path_of(app: object) -> FastPath | None:
    """Return the fast path of an ASGI app or of the app that it wraps, None where there is none."""
    for _ in range(8):
        fast_path = getattr(app, "fast_path", None)
        if fast_path is not None:
            return fast_path  # type: ignore[no-any-return]  # by the name, it is a FastPath
        app = getattr(app, "app", None)
    return None
