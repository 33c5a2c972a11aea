"""One HTTP/1.1 connection to an engine, which passes on the body of an answer as the socket is read.

No coroutine and no queue lies between the socket and the receiver: a receiver that cannot continue pauses the socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Protocol, cast

import httptools
import msgspec
from typing_extensions import override

from gateway.pools.engines.engine_session import MAX_INTERIM, detect_lost_peer

MAX_QUIET_BYTES = 64 * 1024
"""Limit of bytes that bring neither a complete head nor a part of a body: heads, extensions of chunks, trailers."""
MAX_HELD_BYTES = 64 * 1024
"""The socket is paused when this much of a body has come before its receiver."""
_SWITCHING = 101
_WITHOUT_BODY = frozenset((204, 304))


class ConnectionBrokenError(ConnectionError):
    """The connection broke, or the engine sent something other than one HTTP answer."""


class AnswerHead(msgspec.Struct, frozen=True):
    """The head of an answer. Names are in lower case; of repeated fields, the first counts."""

    status: int
    headers: dict[str, str]

    @property
    def content_type(self) -> str:
        """Return the media type without parameters. Without a content type, it is binary."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower() or "application/octet-stream"


class BodyReceiver(Protocol):
    """Receives one answer's body. It is called while the socket is read, so it must not raise."""

    def receive(self, body: bytes, last: bool) -> None:
        """Take a part of the body, of any length. After the last part, `end` follows at once."""
        ...

    def end(self, broken: str | None) -> None:
        """Take the body's end; `broken` says why it is incomplete."""
        ...


class WholeBody:
    """Collects a body. Mutable: what has come of it. `note` is called for each part."""

    def __init__(self, limit: int, note: Callable[[], None]) -> None:
        self._limit = limit
        self._note = note
        self._body = bytearray()
        self._broken: str | None = None
        self._ended = asyncio.Event()

    def receive(self, body: bytes, _last: bool) -> None:
        """Add a part of the body."""
        self._note()
        self._body += body
        if len(self._body) > self._limit:
            self._ended.set()

    def end(self, broken: str | None) -> None:
        """Take the end of the body."""
        self._broken = broken
        self._ended.set()

    async def read(self) -> bytes:
        """Return the body when it has ended, or one byte more than the limit; raise ConnectionBrokenError."""
        await self._ended.wait()
        if self._broken is not None and len(self._body) <= self._limit:
            raise ConnectionBrokenError(self._broken)
        return bytes(self._body) if len(self._body) <= self._limit else bytes(self._body[: self._limit + 1])


class RequestConnection(asyncio.Protocol):
    """Carries one request at a time. Mutable: the state of the current request and its answer.

    `on_lost` is called when the connection is closed, by either side.
    """

    def __init__(self, on_lost: Callable[[RequestConnection], None]) -> None:
        self._on_lost = on_lost
        self._lost = asyncio.Event()
        self._transport: asyncio.Transport | None = None
        self._drained: asyncio.Future[None] | None = None
        self._parts: list[bytes] = []
        # The parser calls it for each part of a body, here without a Python frame.
        self.on_body = self._parts.append
        self._begin()

    def _begin(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        # Engines behind old servers send such heads; they change neither framing nor meaning.
        self._parser.set_dangerous_leniencies(
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )
        self._headers: dict[str, str] = {}
        self._interim = self._quiet_bytes = self._held_bytes = 0
        self._is_interim = self._until_close = self._paused = self._complete = self._keeps_alive = False
        self._awaited: asyncio.Future[AnswerHead] | None = None
        self._head: AnswerHead | None = None
        self._receiver: BodyReceiver | None = None
        # Why the exchange failed. A kept error would keep, by its traceback, the request until a garbage collection.
        self._broken: str | None = None
        self._sending: asyncio.Task[None] | None = None
        # A complete answer may have been left unread.
        self._parts.clear()

    @property
    def is_connected(self) -> bool:
        """Return whether the connection exists, even if it is being closed."""
        return self._transport is not None

    @property
    def is_open(self) -> bool:
        """Return whether a request can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def reusable(self) -> bool:
        """Return whether the last exchange is over and the connection can carry another request."""
        return self._complete and self._keeps_alive and self.is_open and (self._sending is None or self._sending.done())

    def send(self, head: bytes, body: bytes | AsyncIterator[memoryview]) -> None:
        """Send a request. A body in pieces is sent by a task, at the engine's pace."""
        if self._transport is None:
            raise ConnectionBrokenError("the connection is closed")
        self._begin()
        if isinstance(body, bytes):
            self._transport.write(head + body)
            return
        self._transport.write(head)
        self._sending = asyncio.create_task(self._send_pieces(self._transport, body), name="request body")

    async def _send_pieces(self, transport: asyncio.Transport, pieces: AsyncIterator[memoryview]) -> None:
        async for piece in pieces:
            if transport.is_closing():
                return
            transport.write(piece)
            await (self._drained or asyncio.sleep(0))

    async def head(self) -> AnswerHead:
        """Return the head of the answer when it has come; raise ConnectionBrokenError."""
        if self._head is None:
            if self._broken is not None:
                raise ConnectionBrokenError(self._broken)
            self._awaited = asyncio.get_running_loop().create_future()
            try:
                return await self._awaited
            finally:
                self._awaited = None
        return self._head

    def pass_on(self, receiver: BodyReceiver) -> None:
        """Pass on the answer's body to the receiver: now what has come, and the rest as the socket is read."""
        self._receiver = receiver
        self.resume()
        self._deliver()
        if self._complete or self._broken is not None:
            self._end()

    async def read(self, limit: int, note: Callable[[], None] = lambda: None) -> bytes:
        """Return the answer's body. Of a longer one, return one byte more than `limit`, and close the connection.

        `note` is called for each part. Raise ConnectionBrokenError if the body is incomplete.
        """
        body = WholeBody(limit, note)
        self.pass_on(body)
        whole = await body.read()
        if len(whole) > limit:
            self.abort()
        return whole

    def pause(self) -> None:
        """Stop reading the socket, so that the engine has to wait."""
        if not self._paused and self._transport is not None and not self._transport.is_closing():
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Continue reading the socket."""
        if self._paused and self._transport is not None and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()

    def abort(self) -> None:
        """Close the connection without waiting for the engine. The receiver gets nothing more."""
        self._receiver = None
        if self._transport is not None:
            self._transport.abort()

    async def close(self) -> None:
        """Close the connection, and return when the engine can notice it."""
        self.abort()
        if self._transport is not None:
            await self._lost.wait()

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        detect_lost_peer(transport)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._on_lost(self)
        self._lost.set()
        if self._sending is not None:
            self._sending.cancel()
        if self._until_close and exc is None and self._broken is None:
            self._complete = True
            self._end()
        elif not self._complete and self._broken is None:
            self._fail(str(exc) if exc is not None else "the engine closed the connection")
        self._transport = None
        # It refers to this object, which would wait for a garbage collection.
        self._parser = None  # type: ignore[assignment]  # nothing more is received

    @override
    def pause_writing(self) -> None:
        self._drained = asyncio.get_running_loop().create_future()

    @override
    def resume_writing(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None

    @override
    def data_received(self, data: bytes) -> None:
        if self._complete:
            # No request waits for it.
            self.abort()
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            # Whatever follows a complete answer is no part of it.
            self._keeps_alive = False
            if not self._complete and (self._head is None or self._head.status != _SWITCHING):
                self._deliver()
                self._fail(str(error) or type(error).__name__)
                return
        parts = self._parts
        if len(parts) == 1 and self._receiver is not None:
            # Nearly all reads of a stream.
            self._quiet_bytes = 0
            self._receiver.receive(parts.pop(), self._complete)
        elif parts:
            self._quiet_bytes = 0
            self._deliver()
        elif not self._complete:
            self._quiet_bytes += len(data)
            if self._quiet_bytes > MAX_QUIET_BYTES:
                self._fail(f"more than {MAX_QUIET_BYTES} bytes without a body")
                return
        if self._complete:
            self._end()

    def _deliver(self) -> None:
        """Pass on the parts of the body that have come."""
        parts = self._parts
        if self._receiver is None:
            self._held_bytes = sum(map(len, parts))
            if self._held_bytes > MAX_HELD_BYTES:
                self.pause()
        elif parts:
            body = b"".join(parts)
            parts.clear()
            self._receiver.receive(body, self._complete)

    def _end(self) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.end(self._broken)

    def _fail(self, why: str) -> None:
        """End the exchange with an error, and close the connection."""
        self._broken = why
        if self._awaited is not None and not self._awaited.done():
            self._awaited.set_exception(ConnectionBrokenError(why))
        self._end()
        self.abort()

    def on_message_begin(self) -> None:
        """Take the beginning of an answer from the parser. A second one belongs to no request."""
        self._keeps_alive = self._keeps_alive and self._head is None

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header field from the parser. Trailers are dropped."""
        if self._head is None:
            text = value.decode("utf-8", "surrogateescape")
            self._headers.setdefault(name.decode("latin-1").lower(), text)

    def on_headers_complete(self) -> None:
        """Take the end of a head from the parser. A few interim answers are dropped."""
        if self._head is not None:
            raise ConnectionBrokenError("an answer without a request")
        status, headers = self._parser.get_status_code(), self._headers
        # 101 is final: no other answer to the request follows it.
        if 100 <= status < 200 and status != _SWITCHING:
            self._interim, self._is_interim, self._headers = self._interim + 1, True, {}
            if self._interim > MAX_INTERIM:
                raise ConnectionBrokenError(f"more than {MAX_INTERIM} interim answers")
            return
        coding = headers.get("transfer-encoding", "").lower()
        framed = coding.endswith("chunked") if coding else "content-length" in headers
        self._until_close = not framed and status not in _WITHOUT_BODY and status >= 200
        self._keeps_alive = self._parser.should_keep_alive() and status != _SWITCHING
        self._head = AnswerHead(status, headers)
        if self._awaited is not None and not self._awaited.done():
            self._awaited.set_result(self._head)

    def on_message_complete(self) -> None:
        """Take the end of an answer from the parser."""
        if self._is_interim:
            self._is_interim = False
        else:
            self._complete = True
