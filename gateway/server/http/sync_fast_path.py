"""Synchronous fast path for decisions without waiting: answered while the request is parsed, without a task.

The HTTP protocol offers it complete `POST /api/v1/route` requests. The headers are admitted first: the edge applies its
usual checks, and the app identifies the caller. A client on one connection repeats the same headers, so an admission
can be reused for requests whose head is byte for byte the same. A declined request takes the normal path through ASGI
as if the fast path did not exist, so the fast path can decline rare cases.

The responses of one event loop step are sent together. Each send enters the kernel and wakes the client, which evicts
the next decision's data from the CPU caches: a decision between decisions costs two thirds of a decision between sends.
Responses computed in the same step are therefore held until its end, or until MAX_HELD of them are ready. A single
response is sent in the same step.

Its gain, measured by `python -m bench.gateway.decision_api`: a decision costs 1.8 times the CPU of a null app's
response on the fast path, and 4.0 to 4.6 times on the normal path.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

import msgspec

from gateway.server.http.request_head import RequestHead

if TYPE_CHECKING:
    from gateway.contracts.snapshot import ApiKeyEntry, Snapshot


MAX_HELD = 8
"""Number of responses that are sent at once. The first one has then waited for about seven decisions."""


class WriteCoalescer:
    """Holds responses that are ready but not sent, in order. Mutable; used on one event loop's thread."""

    def __init__(self) -> None:
        self._held: list[tuple[asyncio.WriteTransport, bytes]] = []
        self._scheduled = False

    def add(self, loop: asyncio.AbstractEventLoop, transport: asyncio.WriteTransport, data: bytes) -> None:
        """Send `data` in this step of the loop, after data written to the transport before `send`."""
        held = self._held
        held.append((transport, data))
        if len(held) >= MAX_HELD:
            self.send()
        elif not self._scheduled:
            self._scheduled = True
            loop.call_soon(self._end_turn)

    def send(self) -> None:
        """Send all held responses now. Those of closed connections are dropped."""
        held, self._held = self._held, []
        for transport, data in held:
            if not transport.is_closing():
                transport.write(data)

    def _end_turn(self) -> None:
        self._scheduled = False
        self.send()


def coalescer_of(loop: asyncio.AbstractEventLoop) -> WriteCoalescer:
    """Return the write coalescer shared by all connections of this loop."""
    return _coalescers.setdefault(loop, WriteCoalescer())


_coalescers: WeakKeyDictionary[asyncio.AbstractEventLoop, WriteCoalescer] = WeakKeyDictionary()


PATH = b"/api/v1/route"
NO_WAIT = b"wait=false"
"""Query with the meaning of the body's field, for proxies that forward a client's body unchanged."""
TARGETS = frozenset((PATH, PATH + b"?" + NO_WAIT))
"""Paths, with their queries, that the fast path serves."""
ORIGINAL_PATH = b"x-original-uri"
"""The header in which a proxy names the path of its client's request, which determines how the body is read."""
MAX_BODY_BYTES = 64 * 1024

Headers = Sequence[tuple[bytes, bytes]]


class FastAnswer(msgspec.Struct, frozen=True, gc=False):
    """One complete response; the sender adds Content-Length."""

    status: int
    head: bytes
    """Header lines as sent, each with its line end."""
    body: bytes


def header_lines(headers: Headers) -> bytes:
    """Return the headers in wire format."""
    return b"".join([b"%s: %s\r\n" % header for header in headers])


class KnownHead(msgspec.Struct, frozen=True, gc=False):
    """Admitted headers: their caller, and the snapshot under which they were admitted.

    `keys` are all API keys that the admission relies on: the caller's, and the one of the proxy that forwards it.
    """

    keys: tuple[ApiKeyEntry, ...]
    snapshot: Snapshot | None
    caller: Any
    """For whom the decision is made, in terms of the app (gateway.requests.caller_facts.DecisionCaller)."""
    waits: bool = True
    """Whether the request can be queued, unless its body overrides this."""
    original_path: bytes = b""
    """Value of the ORIGINAL_PATH header."""


class InnerFastPath(Protocol):
    """An app behind the edge with a fast path for decisions. GatewayApp implements it."""

    @property
    def new_id(self) -> Callable[[], str]:
        """Return the function that generates request ids."""
        ...

    def admit(self, target: bytes, head: RequestHead) -> KnownHead | None:
        """Return the caller of one of TARGETS, None if the normal path has to check more."""
        ...

    def answer_at_once(self, admission: KnownHead, body: bytes) -> FastAnswer | None:
        """Answer a request with these headers, or return None to decline it."""
        ...


class FastPath(Protocol):
    """The interface that the protocol calls. The edge implements it."""

    def admit(self, target: bytes, headers: Headers) -> KnownHead | None:
        """Check headers (names in lower case) to one of TARGETS. None: the request takes the normal path."""
        ...

    def answer_at_once(self, admission: KnownHead, body: bytes) -> FastAnswer | None:
        """Answer a request with these headers, or return None to decline it."""
        ...


def fast_path_of(app: object) -> FastPath | None:
    """Return the fast path of an ASGI app or of the app that it wraps, None if there is none."""
    for _ in range(8):
        fast_path = getattr(app, "fast_path", None)
        if fast_path is not None:
            return fast_path  # type: ignore[no-any-return]  # by the name, it is a FastPath
        app = getattr(app, "app", None)
    return None
