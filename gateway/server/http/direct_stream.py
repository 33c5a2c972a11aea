"""Writes a response's body to its client's transport, without an ASGI message for each part."""

from __future__ import annotations

import asyncio

from typing_extensions import override
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from gateway.base.asgi_types import Message, Send
from gateway.server.http.client_stream import CLIENT_STREAM, BodySource, DirectClientStream


class _Joined:
    """Replaces a transport during one write, to which it adds data."""

    __slots__ = ("_added", "_transport")

    def __init__(self, transport: asyncio.Transport, added: bytes) -> None:
        self._transport = transport
        self._added = added

    def write(self, data: bytes) -> None:
        self._transport.write(data + self._added)


class DirectStream(DirectClientStream):
    """Writes chunks to the client's transport."""

    __slots__ = ("_cycle", "_protocol")

    def __init__(self, protocol: DirectProtocol, cycle: RequestResponseCycle) -> None:
        self._protocol = protocol
        self._cycle = cycle

    @override
    def follow(self, source: BodySource | None) -> None:
        """Pause and resume this source with the client; None: no source."""
        self._protocol.body_source = source
        if source is not None and self._cycle.flow.write_paused:
            source.pause()

    @override
    def write(self, body: bytes) -> None:
        """Send a chunk."""
        if not self._cycle.disconnected:
            self._cycle.transport.write(b"%x\r\n%b\r\n" % (len(body), body))

    @override
    async def until(self, ended: asyncio.Future[None]) -> None:
        """Return when the source has ended."""
        await ended

    @override
    async def last_part(self, body: bytes) -> bytes:
        """Wait until the client has read; return the body, which takes no write of its own."""
        if self._cycle.flow.write_paused:
            await self._cycle.flow.drain()
        return body

    @override
    async def send_joined(self, send: Send, head: Message, first: bytes) -> None:
        """Send the response's head and the first part of its body in one write."""
        cycle = self._cycle
        transport = cycle.transport
        # Two writes would cost two system calls, each of which wakes the client.
        cycle.transport = _Joined(transport, b"%x\r\n%b\r\n" % (len(first), first))  # type: ignore[assignment]
        try:
            await send(head)
        finally:
            cycle.transport = transport


class DirectProtocol(HttpToolsProtocol):
    """uvicorn's protocol, which offers each request a DirectStream. Mutable: the source of the current body."""

    body_source: BodySource | None = None

    @override
    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        cycle: RequestResponseCycle | None = self.cycle
        # A websocket upgrade begins no response.
        if cycle is not None and cycle.scope is self.scope:
            self.scope["extensions"] = {CLIENT_STREAM: DirectStream(self, cycle)}  # type: ignore[dict-item]  # not JSON

    @override
    def pause_writing(self) -> None:
        super().pause_writing()
        if self.body_source is not None:
            self.body_source.pause()

    @override
    def resume_writing(self) -> None:
        super().resume_writing()
        if self.body_source is not None:
            self.body_source.resume()
