"""One HTTP request and its response, as the gateway's handlers see it, and work that ends when its client disconnects.

A thin layer over raw ASGI.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from gateway.base.asgi_types import Message, Receive, Scope, Send
from gateway.server.http.client_stream import CLIENT_STREAM, ClientStream, DirectClientStream, MessageStream
from gateway.server.http.openai_error import ApiError
from gateway.server.http.request_head import RequestHead, head_of

Header = tuple[bytes, bytes]

JSON: Header = (b"content-type", b"application/json")
_EVENTS: tuple[Header, ...] = ((b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache"))
_COMMENT = b": waiting\n\n"
NOSNIFF: Header = (b"x-content-type-options", b"nosniff")
"""Responses have the console's origin, so browsers must not guess another content type."""


class ClientGoneError(Exception):
    """The client closed the connection before its request was complete."""


class Exchange:
    """Reads one request and writes one response, complete or in chunks.

    Mutable: `started`, True once the response has begun and no other is possible; its `status`, 0 until then;
    `decision_id`, which becomes a response header once it is set; and the comments sent to the client until then.
    """

    __slots__ = (
        "_comments",
        "_receive",
        "_send",
        "decision_id",
        "head",
        "method",
        "path",
        "scope",
        "started",
        "status",
    )

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.head: RequestHead = head_of(scope)
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.started = False
        self.status = 0
        self.decision_id = ""
        self._comments: _Comments | None = None
        self._receive = receive
        self._send = send

    async def body(self) -> bytes:
        """Return the complete request body, which the edge limits. Raise ClientGoneError."""
        message = await self._receive()
        if message["type"] != "http.request":
            raise ClientGoneError
        first: bytes = message.get("body", b"")
        if not message.get("more_body", False):
            return first
        # Its value is the written data, uncopied: joining the parts of a large body would hold the event loop.
        whole = io.BytesIO()
        whole.write(first)
        while message.get("more_body", False):
            message = await self._receive()
            if message["type"] != "http.request":
                raise ClientGoneError
            whole.write(message.get("body", b""))
        return whole.getvalue()

    async def body_within(self, limit: int) -> bytes:
        """Return the body; raise ApiError 413 if it is longer than this, although the edge allows it."""
        body = await self.body()
        if len(body) > limit:
            raise ApiError(413, f"The body is larger than the {limit} bytes allowed here.", "body_too_large")
        return body

    async def disconnected(self) -> None:
        """Return when the client has closed the connection. Call it after `body`."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def answer(self, status: int, body: bytes, headers: Sequence[Header] = (JSON,)) -> None:
        """Send a complete response. Like all sending methods, raise ClientGoneError if the server reports it."""
        comments = self._comments
        try:
            await self.start(status, [*headers, (b"content-length", b"%d" % len(body))])
            sent = body if comments is None or not comments.head_is_out else comments.as_event(body)
            await self._send({"type": "http.response.body", "body": sent, "more_body": False})
        except OSError:
            raise ClientGoneError from None

    def comment_while_waiting(self, every_s: float, as_event: Callable[[bytes], bytes]) -> None:
        """Send a comment to a streaming client after each interval without a response, if `every_s` is positive.

        The first comment sends a stream head with status 200. A complete response after that is sent as the event that
        `as_event` makes of its body.
        """
        if every_s > 0 and self._comments is None:
            self._comments = _Comments(self, every_s, as_event)

    async def stop_comments(self) -> None:
        """Stop sending comments."""
        if self._comments is not None:
            await self._comments.stop()

    async def start(self, status: int, headers: list[Header], first: bytes = b"") -> None:
        """Send status and headers, unless comments have done so, and the first part of the body. Chunks follow."""
        self.started = True
        self.status = status
        await self.stop_comments()
        if self._comments is None or not self._comments.head_is_out:
            await self.head_out(status, headers, first)
        elif first:
            await self.chunk(first)

    async def head_out(self, status: int, headers: list[Header], first: bytes = b"") -> None:
        """Send status and headers, and the first part of the body."""
        headers.append(NOSNIFF)
        if self.decision_id:
            headers.append((b"x-headway-decision", self.decision_id.encode()))
        head: Message = {"type": "http.response.start", "status": status, "headers": headers}
        direct = self._direct() if first else None
        try:
            if direct is not None:
                await direct.send_joined(self._send, head, first)
            else:
                await self._send(head)
        except OSError:
            raise ClientGoneError from None
        if first and direct is None:
            await self.chunk(first)

    async def chunk(self, body: bytes) -> None:
        """Send a part of the body immediately."""
        try:
            await self._send({"type": "http.response.body", "body": body, "more_body": True})
        except OSError:
            raise ClientGoneError from None

    def stream(self) -> ClientStream:
        """Return the body of the started response as a stream, for a source that does not wait for each part."""
        direct = self._direct()
        return direct if direct is not None else MessageStream(self.chunk)

    def _direct(self) -> DirectClientStream | None:
        """Return the server's stream to the client, None if the server offers none."""
        direct = self.scope.get("extensions", {}).get(CLIENT_STREAM)
        return direct if isinstance(direct, DirectClientStream) else None

    async def end(self, last: bytes = b"") -> None:
        """End a chunked response, after the last part of its body."""
        try:
            await self._send({"type": "http.response.body", "body": last, "more_body": False})
        except OSError:
            raise ClientGoneError from None


class _Comments:
    """Sends comments until it is stopped. Mutable: whether the stream head was sent."""

    def __init__(self, exchange: Exchange, every_s: float, as_event: Callable[[bytes], bytes]) -> None:
        self.head_is_out = False
        self.as_event = as_event
        self._task = asyncio.create_task(self._run(exchange, every_s), name="stream comments")

    async def stop(self) -> None:
        self._task.cancel()
        # A comment that is being sent ends before the answer begins.
        await asyncio.wait((self._task,))

    async def _run(self, exchange: Exchange, every_s: float) -> None:
        with suppress(ClientGoneError):
            while True:
                await asyncio.sleep(every_s)
                if not self.head_is_out:
                    # A copy, because head_out adds to it.
                    await exchange.head_out(200, list(_EVENTS))
                    self.head_is_out = True
                await exchange.chunk(_COMMENT)


Done = TypeVar("Done")


async def while_connected(
    exchange: Exchange, work: Coroutine[Any, Any, Done], undo: Callable[[Done], None] | None = None
) -> Done:
    """Return the result of `work`. If the client disconnects first, cancel it and raise ClientGoneError.

    `undo` receives a result that was ready too late for the client.
    """
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(exchange.disconnected())
    try:
        try:
            await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
            if not gone.done():
                return await task
        finally:
            gone.cancel()
            if not task.done():
                task.cancel()
                # It may complete despite the cancellation; its result is then undone below.
                await asyncio.wait((task,))
        if not task.cancelled() and task.exception() is None and undo is not None:
            undo(task.result())
        raise ClientGoneError
    finally:
        # The task's error would keep, by its traceback, this frame and the task until a garbage collection.
        del task, gone
