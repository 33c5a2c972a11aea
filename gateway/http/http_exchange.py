"""One HTTP request and its answer, as handlers of the gateway see it: a thin layer over raw ASGI."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.base.asgi_types import Receive, Scope, Send
from gateway.http.request_head import RequestHead, head_of

Header = tuple[bytes, bytes]

JSON: Header = (b"content-type", b"application/json")


class ClientGoneError(Exception):
    """The client closed the connection before its request was complete."""


class Exchange:
    """Reads one request and writes one answer, complete or in chunks.

    Mutable state: `started`, True once the status line is out and no other answer is possible, and that `status`, 0
    until then; `decision_id`, which goes into a header of the answer as soon as it is set.
    """

    __slots__ = ("_receive", "_send", "decision_id", "head", "method", "path", "scope", "started", "status")

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.head: RequestHead = head_of(scope)
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.started = False
        self.status = 0
        self.decision_id = ""
        self._receive = receive
        self._send = send

    async def body(self) -> bytes:
        """Return the whole request body; the edge has put a limit on it. Raises ClientGoneError."""
        message = await self._receive()
        if message["type"] != "http.request":
            raise ClientGoneError
        first: bytes = message.get("body", b"")
        if not message.get("more_body", False):
            return first
        parts = [first]
        while message.get("more_body", False):
            message = await self._receive()
            if message["type"] != "http.request":
                raise ClientGoneError
            parts.append(message.get("body", b""))
        return b"".join(parts)

    async def disconnected(self) -> None:
        """Return when the client has closed the connection; call it after `body`."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def answer(self, status: int, body: bytes, headers: Sequence[Header] = (JSON,)) -> None:
        """Send a whole answer. Raises ClientGoneError, as all that send do, where the server says so."""
        try:
            await self.start(status, [*headers, (b"content-length", b"%d" % len(body))])
            await self._send({"type": "http.response.body", "body": body, "more_body": False})
        except OSError:
            raise ClientGoneError from None

    async def start(self, status: int, headers: list[Header]) -> None:
        """Send status and headers; chunks follow."""
        self.started = True
        self.status = status
        if self.decision_id:
            headers.append((b"x-switchyard-decision", self.decision_id.encode()))
        try:
            await self._send({"type": "http.response.start", "status": status, "headers": headers})
        except OSError:
            raise ClientGoneError from None

    async def chunk(self, body: bytes) -> None:
        """Send a part of the body at once."""
        try:
            await self._send({"type": "http.response.body", "body": body, "more_body": True})
        except OSError:
            raise ClientGoneError from None

    async def end(self) -> None:
        """End a chunked answer."""
        try:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
        except OSError:
            raise ClientGoneError from None
