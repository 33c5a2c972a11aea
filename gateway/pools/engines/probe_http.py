"""Reads small responses over one persistent HTTP/1.1 connection, at a fraction of a full client's cost.

A prober that reads hundreds of engines ten times a second spends most of its time in its HTTP client. This client
supports only GET, a status and Content-Length. Any other response raises NotPlainError, and the caller repeats the
request with a full client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple, cast
from urllib.parse import urlsplit

from typing_extensions import override

MAX_HEAD_BYTES = 16 << 10
_END = b"\r\n\r\n"


class NotPlainError(Exception):
    """The response needs a full client."""


class BrokenOffError(ConnectionError):
    """The connection ended before the response was complete."""


class TooLongError(Exception):
    """The response exceeds the caller's limit."""


class ProbeAnswer(NamedTuple):
    """One complete response."""

    status: int
    content_type: str
    """Lower case, without parameters; empty if missing."""
    body: bytes


class ProbeClient:
    """A client for one server, with one request at a time. Mutable: the connection."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        """Read from `url`, an http URL (see `speaks`), and send these headers with each request."""
        parts = urlsplit(url)
        self._host = parts.hostname or ""
        self._port = parts.port or 80
        self._prefix = parts.path.rstrip("/")
        # Host has no user and password (RFC 9110, §7.2).
        lines = [f"Host: {parts.netloc.rpartition('@')[2]}", *(f"{name}: {value}" for name, value in headers.items())]
        self._tail = "".join(f"{line}\r\n" for line in lines).encode() + b"\r\n"
        self._connection: _Connection | None = None

    @staticmethod
    def speaks(url: str) -> bool:
        """Return whether this client supports the URL. TLS needs the full client."""
        return urlsplit(url).scheme == "http"

    async def get(self, path: str, *, limit: int, timeout_s: float) -> ProbeAnswer:
        """Return the response to GET `path`, with at most `limit` bytes.

        Raise NotPlainError, TooLongError, TimeoutError after `timeout_s`, or OSError if no response arrives. A
        connection that the server closed between two requests is replaced once.
        """
        request = b"GET %s HTTP/1.1\r\n" % (self._prefix + path).encode() + self._tail
        done = False
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self._ask(request, limit)
            done = True
            return answer
        finally:
            if not done or (self._connection is not None and self._connection.ends):
                self.close()

    def close(self) -> None:
        """Close the connection. The next `get` opens a new one."""
        if self._connection is not None:
            self._connection.abort()
            self._connection = None

    async def _ask(self, request: bytes, limit: int) -> ProbeAnswer:
        kept = self._connection
        if kept is not None and kept.open:
            try:
                return await kept.ask(request, limit)
            except ConnectionError:
                # The server was free to close an idle connection.
                if kept.received:
                    raise
        self.close()
        loop = asyncio.get_running_loop()
        _, self._connection = await loop.create_connection(_Connection, self._host, self._port)
        return await self._connection.ask(request, limit)


class _Connection(asyncio.Protocol):
    """One connection. Mutable: the response in progress and its waiter."""

    def __init__(self) -> None:
        self.open = False
        self.ends = False
        """Whether the server announced that this response is the last on the connection."""
        self.received = False
        """Whether any byte of the current response has arrived."""
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[ProbeAnswer] | None = None
        self._buffer = b""
        self._limit = 0
        self._body_from = 0
        self._needed = -1
        self._status = 0
        self._content_type = ""

    async def ask(self, request: bytes, limit: int) -> ProbeAnswer:
        """Send the request and return its response."""
        if self._transport is None:
            raise BrokenOffError("the connection is closed")
        self._waiter = asyncio.get_running_loop().create_future()
        self._buffer, self._needed, self._limit, self.received = b"", -1, limit, False
        self._transport.write(request)
        return await self._waiter

    def abort(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.open = True

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False
        self._transport = None
        self._fail(BrokenOffError("the connection broke off"))

    @override
    def data_received(self, data: bytes) -> None:
        self.received = True
        self._buffer = self._buffer + data if self._buffer else data
        try:
            if self._needed < 0 and not self._read_head():
                return
            if len(self._buffer) >= self._needed:
                self._finish()
        except (NotPlainError, TooLongError) as error:
            self._fail(error)

    def _read_head(self) -> bool:
        """Parse the head if it is complete; return whether it was. Raise NotPlainError if it needs a full client."""
        end = self._buffer.find(_END)
        if end < 0:
            if len(self._buffer) > MAX_HEAD_BYTES:
                raise NotPlainError("the head is too long")
            return False
        head = self._buffer[:end].decode("latin-1")
        status, _, lines = head.partition("\r\n")
        if not status.startswith("HTTP/1.") or not status[9:12].isdigit():
            raise NotPlainError("no HTTP/1 answer")
        fields = _fields(lines)
        length = fields.get("content-length", "")
        if (
            "transfer-encoding" in fields
            or not length.isdigit()
            or fields.get("content-encoding", "identity")
            not in (
                "identity",
                "",
            )
        ):
            raise NotPlainError("no plain body of known length")
        if int(length) > self._limit:
            raise TooLongError(f"{length} bytes")
        self._status = int(status[9:12])
        self._content_type = fields.get("content-type", "").partition(";")[0].strip().lower()
        self.ends = status.startswith("HTTP/1.0") or fields.get("connection", "").lower() == "close"
        self._body_from = end + len(_END)
        self._needed = self._body_from + int(length)
        return True

    def _finish(self) -> None:
        if len(self._buffer) > self._needed:
            raise NotPlainError("bytes follow the answer")
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(ProbeAnswer(self._status, self._content_type, self._buffer[self._body_from :]))
        self._buffer = b""
        self._needed = -1

    def _fail(self, error: Exception) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)


def _fields(lines: str) -> dict[str, str]:
    """Return the header fields by lower-case name. Values of a repeated name are joined."""
    fields: dict[str, str] = {}
    for line in lines.split("\r\n"):
        name, _, value = line.partition(":")
        name = name.lower()
        # Two lengths become a text that is no number, which leaves the answer to the full client.
        fields[name] = f"{fields[name]},{value.strip()}" if name in fields else value.strip()
    return fields
