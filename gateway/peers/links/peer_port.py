"""The port to which other gateways connect. A stranger gets few connections, for seconds, and reaches no handler."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler
from aiohttp.web_protocol import RequestHandler
from typing_extensions import override

from gateway.base import background
from gateway.server.http.connection_limit import ConnectionLimit
from gateway.server.http.http_protocol import HEAD_TIMEOUT_S, MAX_HEAD_BYTES
from kvstore.transfer.unproven import Unproven

PEER: web.RequestKey[Any] = web.RequestKey("peer")
"""Key under which a request stores its sender, for handlers."""
MAX_CONNECTIONS = 4096
MAX_UNPROVEN = 256
HANDSHAKE_S = 5.0
KEEP_ALIVE_S = HEAD_TIMEOUT_S / 2
"""Clients of this port close an idle connection before the port does, so that no request meets a closing connection."""
_BACKLOG = 1024
_PAUSE_S = 0.1
_HEAD_END = b"\r\n\r\n"

Identify = Callable[[web.Request], object | None]
"""Returns the fleet's gateway that the request proves to be from; None: no proof."""


class PeerPort:
    """Accepts connections for an aiohttp app. Everything runs on its event loop.

    Mutable: the listening sockets, the open connections by their HTTP handler, those without a proof yet, and tasks.
    """

    def __init__(
        self,
        identify: Identify,
        unproved: Callable[[web.Request], web.Response],
        tls: ssl.SSLContext | None,
        rejected: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`unproved` answers a request without a proof.

        `rejected` is called with the cause for each connection that is closed or ends without a proof.
        """
        self._identify, self._unproved_answer = identify, unproved
        self._tls, self._rejected, self._clock = tls, rejected, clock
        # Clients may take three quarters of the descriptors (connection_limit.py).
        self._limit = ConnectionLimit(min(MAX_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 8))
        self._unproven: Unproven[_Connection] = Unproven(MAX_UNPROVEN, HEAD_TIMEOUT_S)
        self._open: dict[RequestHandler, _Connection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._listeners: list[socket.socket] = []
        self._runner: web.AppRunner | None = None

    async def start(self, app: web.Application, host: str, port: int) -> int:
        """Listen; return the port. Port 0 selects a free one."""
        self._runner = web.AppRunner(
            app,
            access_log=None,
            logger=_logger,
            shutdown_timeout=1.0,
            keepalive_timeout=HEAD_TIMEOUT_S,
            # A handler whose peer has gone is cancelled, so that it does no work in vain.
            handler_cancellation=True,
        )
        await self._runner.setup()
        addresses = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        for family, address in dict.fromkeys((item[0], item[4]) for item in addresses):
            listener = socket.create_server(address[:2], family=family, backlog=_BACKLOG)
            listener.setblocking(False)
            self._listeners.append(listener)
            self._listen(listener)
        self._keep(background.every("late peers", 1.0, self.close_late))
        return int(self._listeners[0].getsockname()[1])

    async def stop(self) -> None:
        """Close the port and all connections."""
        for listener in self._listeners:
            asyncio.get_running_loop().remove_reader(listener)
            listener.close()
        self._listeners.clear()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for connection in tuple(self._open.values()):
            if not connection.begun:
                # Its task has ended before a transport owned the socket.
                connection.sock.close()
        if self._runner is not None:
            await self._runner.cleanup()

    @web.middleware
    async def prove(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Forward requests of the fleet's gateways with their sender. Answer all others with 401."""
        peer = self._identify(request)
        if peer is None:
            return self._unproved_answer(request)
        connection = self._open.get(request.protocol)
        if connection is not None:
            self._unproven.leave(connection)
        request[PEER] = peer
        return await handler(request)

    def close_late(self) -> None:
        """Close connections that took too long to prove themselves. Call it about once a second."""
        for item in self._unproven.late(self._clock()):
            self._close(item, "late")

    def _listen(self, listener: socket.socket) -> None:
        # Not `loop.sock_accept`: a connection accepted into its future leaks if the waiting task is canceled then.
        if listener in self._listeners:
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        try:
            sock, address = listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError:
            # Out of descriptors: wait for one, rather than spin.
            loop = asyncio.get_running_loop()
            loop.remove_reader(listener)
            loop.call_later(_PAUSE_S, self._listen, listener)
            return
        sock.setblocking(False)
        source = self._limit.enter(address[0], len(self._open) + 1)
        if source is None or self._runner is None or self._runner.server is None:
            self._rejected("crowded")
            sock.close()
            return
        connection = _Connection(sock, source, self._runner.server(), self)
        self._open[connection.handler] = connection
        displaced = self._unproven.enter(connection, address[0], self._clock())
        if displaced is not None:
            self._close(displaced, "displaced")
        self._keep(asyncio.create_task(self._begin(connection), name="handshake of a peer"))

    async def _begin(self, connection: _Connection) -> None:
        loop, timeout_s = asyncio.get_running_loop(), HANDSHAKE_S if self._tls is not None else None
        try:
            await loop.connect_accepted_socket(
                lambda: connection, connection.sock, ssl=self._tls, ssl_handshake_timeout=timeout_s
            )
        except OSError:
            connection.sock.close()
            self.ended(connection)

    def ended(self, connection: _Connection) -> None:
        """Stop counting a connection."""
        if self._open.pop(connection.handler, None) is not None:
            self._limit.leave(connection.source)
        if self._unproven.leave(connection):
            self._rejected("unproved")

    def too_large(self, connection: _Connection) -> None:
        """Close a connection whose first head exceeds the limit."""
        if self._unproven.leave(connection):
            self._close(connection, "large_head")

    def _close(self, connection: _Connection, cause: str) -> None:
        self._rejected(cause)
        with suppress(OSError):
            # Ends a handshake, too, which has no transport yet.
            connection.sock.shutdown(socket.SHUT_RDWR)

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _Connection(asyncio.Protocol):
    """Passes a connection's events to its HTTP handler. Mutable: the size of the first head so far."""

    def __init__(self, sock: socket.socket, source: str, handler: RequestHandler, port: PeerPort) -> None:
        self.sock, self.source, self.handler, self._port = sock, source, handler, port
        self.begun = False
        """Whether the connection has a transport."""
        self._head_bytes = 0
        self._last: bytes | None = b""
        """Last bytes of the first head; None: the head is complete."""

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.begun = True
        self.handler.connection_made(transport)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.handler.connection_lost(exc)
        self._port.ended(self)

    @override
    def data_received(self, data: bytes) -> None:
        if self._last is not None:
            self._head_bytes += len(data)
            seen = self._last + data
            # The head's end may be divided between two chunks.
            self._last = None if _HEAD_END in seen else seen[1 - len(_HEAD_END) :]
            if self._last is not None and self._head_bytes > MAX_HEAD_BYTES:
                self._port.too_large(self)
                return
        self.handler.data_received(data)

    @override
    def eof_received(self) -> None:
        self.handler.eof_received()

    @override
    def pause_writing(self) -> None:
        self.handler.pause_writing()

    @override
    def resume_writing(self) -> None:
        self.handler.resume_writing()


def _is_ours(record: logging.LogRecord) -> bool:
    """Return whether a log record is about a fault here, not about a request that any client could send."""
    return record.exc_info is None or not isinstance(record.exc_info[1], HttpProcessingError)


_logger = logging.getLogger(__name__)
_logger.addFilter(_is_ours)
