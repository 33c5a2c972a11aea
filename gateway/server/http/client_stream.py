"""Streams a response's body to its client, and pauses its source while the client does not read.

The server's protocol offers a stream that writes to the client's transport. Without it, for example where another
server calls the app, the stream sends ASGI messages.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Protocol

from typing_extensions import override

from gateway.base.asgi_types import Message, Send

CLIENT_STREAM = "headway.client_stream"
"""Key of the server's DirectClientStream in the ASGI scope's extensions."""


class BodySource(Protocol):
    """Where the body comes from."""

    def pause(self) -> None:
        """Stop sending, because the client does not read."""
        ...

    def resume(self) -> None:
        """Continue."""
        ...


class ClientStream(ABC):
    """The body of a response that has started."""

    __slots__ = ()

    @abstractmethod
    def follow(self, source: BodySource | None) -> None:
        """Pause and resume this source with the client; None: no source."""

    @abstractmethod
    def write(self, body: bytes) -> None:
        """Send a part of the body without waiting. A client that is gone gets nothing."""

    @abstractmethod
    async def until(self, ended: asyncio.Future[None]) -> None:
        """Return when the source has ended and the server has everything written until then."""

    @abstractmethod
    async def last_part(self, body: bytes) -> bytes:
        """Wait until the client can have the last part of the body; return it if it is to be sent with the end."""


class DirectClientStream(ClientStream):
    """A stream that the server offers."""

    __slots__ = ()

    @abstractmethod
    async def send_joined(self, send: Send, head: Message, first: bytes) -> None:
        """Send the response's head with `send`, and the first part of its body, in one write."""


class MessageStream(ClientStream):
    """Sends ASGI messages. Mutable: the body that is not sent yet."""

    def __init__(self, send: Callable[[bytes], Awaitable[None]]) -> None:
        self._send = send
        self._source: BodySource | None = None
        self._unsent: list[bytes] = []
        self._written = asyncio.Event()

    @override
    def follow(self, source: BodySource | None) -> None:
        """Pause this source while a message is being sent; None: no source."""
        self._source = source

    @override
    def write(self, body: bytes) -> None:
        """Send a part of the body with the next message."""
        self._unsent.append(body)
        self._written.set()

    @override
    async def until(self, ended: asyncio.Future[None]) -> None:
        """Send messages until the source has ended."""
        ended.add_done_callback(lambda _: self._written.set())
        while self._unsent or not ended.done():
            if not self._unsent:
                await self._written.wait()
            self._written.clear()
            body, self._unsent = b"".join(self._unsent), []
            if body:
                await self._send_one(body)

    @override
    async def last_part(self, body: bytes) -> bytes:
        """Send the last part of the body."""
        if body:
            await self._send_one(body)
        return b""

    async def _send_one(self, body: bytes) -> None:
        source = self._source
        if source is not None:
            source.pause()
        await self._send(body)
        if source is not None:
            source.resume()
