"""Serves a node's blocks: a thread per connection, because blocking sockets move large blocks with the fewest steps."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from kvstore.tiers.block_facts import BlockFacts
from kvstore.transfer.client_links import ClientLinks
from kvstore.transfer.connection import Connection, PeerError, large_buffers
from kvstore.transfer.flow_control import FlowControl
from kvstore.transfer.frames import Blocks, Get, Message, Put, Refused, Reply, Write
from kvstore.transfer.tls import TlsFiles

TIMEOUT_S = 30.0
"""A client that is silent for so long, within a frame or between two, is cut off."""
_GREETING_S = 5.0
_WINDOW_BYTES = 64 << 20
MAX_CONNECTIONS = 256

ReadBlock = tuple[BlockFacts, memoryview]


class Incoming(Protocol):
    """Blocks that are about to be written."""

    @property
    def views(self) -> Sequence[tuple[int, memoryview | None]]:
        """Return per block its length, and where its bytes go; None: nowhere, it is there already."""

    def finish(self, checksums: Sequence[bytes]) -> Reply:
        """End the write with the checksums of what came; an empty one: the bytes did not come."""


class NodeService(Protocol):
    """What the server needs of a node; called from many threads."""

    def reading(self, keys: Sequence[bytes], max_bytes: int) -> AbstractContextManager[list[ReadBlock | None]]:
        """Yield the first of these blocks, as many as fit, which stay where they are until the end."""

    def begin_put(self, message: Put) -> Incoming | Refused:
        """Make room for blocks."""

    def begin_write(self, message: Write, payload_bytes: int) -> Incoming | Refused:
        """Prepare to fill allocated blocks."""

    def answer(self, message: Message) -> Reply:
        """Do what a message without payload asks for."""


class TransferServer:
    """Mutable state: `_connections`, connection → whether it is within an exchange, guarded by `_lock`."""

    def __init__(
        self,
        service: NodeService,
        secret: bytes,
        identity: tuple[str, int],
        address: tuple[str, int],
        tls: TlsFiles | None = None,
    ) -> None:
        self._service, self._secret, self._identity = service, secret, identity
        self._tls = tls.server() if tls else None
        self._flow = FlowControl(_WINDOW_BYTES)
        self._connections: dict[Connection, bool] = {}
        self._lock = threading.Condition()
        self._draining = False
        self.links = ClientLinks()
        self.refused = 0
        """Connections that were closed because there are too many, or that did not know the secret."""
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._listener = socket.create_server(address, family=family, backlog=128)
        large_buffers(self._listener)
        self.port = int(self._listener.getsockname()[1])

    def __len__(self) -> int:
        return len(self._connections)

    def start(self) -> None:
        """Accept connections from now on."""
        threading.Thread(target=self._accept, name="kv-accept", daemon=True).start()

    def drain(self, timeout_s: float) -> bool:
        """Accept nothing more, let exchanges end, and close; False where some had to be cut off."""
        with self._lock:
            self._draining = True
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            for connection, within in self._connections.items():
                if not within:
                    connection.wake()
            ended = self._lock.wait_for(lambda: not self._connections, timeout_s)
            for connection in self._connections:
                connection.wake()
                connection.close()
        return ended

    def _accept(self) -> None:
        while not self._draining:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                # Out of descriptors: wait for one, rather than spin.
                with self._lock:
                    self._lock.wait(0.05)
                continue
            connection = Connection(sock, _GREETING_S)
            with self._lock:
                crowded = len(self._connections) >= MAX_CONNECTIONS
                if not crowded:
                    self._connections[connection] = False
            if crowded:
                self.refused += 1
                connection.close()
                continue
            threading.Thread(target=self._serve, args=(connection, sock), name="kv-connection", daemon=True).start()

    def _serve(self, connection: Connection, sock: socket.socket) -> None:
        try:
            with contextlib.suppress(OSError):
                client = self._greet(connection, sock)
                while not self._draining:
                    message, payload_bytes = connection.receive()
                    self._within(connection, within=True)
                    self._exchange(connection, client, message, payload_bytes)
                    self._within(connection, within=False)
        finally:
            connection.close()
            with self._lock:
                self._connections.pop(connection, None)
                self._lock.notify_all()

    def _greet(self, connection: Connection, sock: socket.socket) -> str:
        """Return what the client is called: its own word, or its host."""
        try:
            host = str(sock.getpeername()[0])
            if self._tls is not None:
                connection.start_tls(self._tls.wrap_socket(sock, server_side=True))
            name = connection.accept_client(self._secret, *self._identity)
            connection.set_timeout(TIMEOUT_S)
            return name or host
        except OSError:
            self.refused += 1
            raise

    def _within(self, connection: Connection, *, within: bool) -> None:
        with self._lock:
            self._connections[connection] = within

    def _exchange(self, connection: Connection, client: str, message: Message, payload_bytes: int) -> None:
        if isinstance(message, Get):
            self._send_blocks(connection, client, message)
        elif isinstance(message, Put):
            self._receive_blocks(connection, self._service.begin_put(message), payload_bytes)
        elif isinstance(message, Write):
            self._receive_blocks(connection, self._service.begin_write(message, payload_bytes), payload_bytes)
        else:
            connection.send(self._service.answer(message))
        if payload_bytes:
            self.links.received(client, payload_bytes)

    def _send_blocks(self, connection: Connection, client: str, message: Get) -> None:
        with self._service.reading(message.keys, message.max_bytes) as found:
            lengths = [-1 if each is None else each[0].length for each in found]
            checksums = [b"" if each is None else each[0].checksum for each in found]
            payload = [each[1] for each in found if each is not None]
            size = sum(map(len, payload))
            with self._flow.moving(max(0, message.priority), size, TIMEOUT_S):
                connection.send(Blocks(lengths, checksums), payload)
        if size:
            self.links.sent(client, size, message.bytes_per_s)

    def _receive_blocks(self, connection: Connection, incoming: Incoming | Refused, payload_bytes: int) -> None:
        if isinstance(incoming, Refused):
            connection.discard(payload_bytes)
            connection.send(incoming)
            return
        checksums: list[bytes] = []
        try:
            for length, view in incoming.views:
                if view is None:
                    connection.discard(length)
                else:
                    checksums.append(connection.receive_payload(view))
        except PeerError:
            missing = sum(view is not None for _, view in incoming.views) - len(checksums)
            incoming.finish(checksums + [b""] * missing)
            raise
        connection.send(incoming.finish(checksums))
