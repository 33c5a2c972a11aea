"""Serve a node's blocks with one thread per connection: blocking sockets move large blocks with the fewest steps."""

from __future__ import annotations

import contextlib
import math
import socket
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from kvstore.keys.keyring import Keyring
from kvstore.tiers.block_facts import BlockFacts
from kvstore.transfer.connection import Connection, PeerError, large_buffers
from kvstore.transfer.flow_control import FlowControl
from kvstore.transfer.frames import Blocks, Get, Message, Put, Reply, TransferRejected, Write
from kvstore.transfer.handshake import CONNECTIONS
from kvstore.transfer.tls import FileTls, TlsFiles
from kvstore.transfer.unproven import Unproven

MAX_LINKS = 256


class ClientLink:
    """One client's link. Mutable: bytes in both directions, and the rate, which only the receiver can measure."""

    def __init__(self) -> None:
        self.sent_bytes = 0
        self.received_bytes = 0
        self.bytes_per_s = 0.0
        """The client's last reported rate, 0 before its first measurement."""


class ClientLinks:
    """At most MAX_LINKS clients; a new one replaces the oldest. For any number of threads."""

    def __init__(self) -> None:
        self._links: dict[str, ClientLink] = {}
        self._lock = threading.Lock()

    def sent(self, name: str, size: int, reported_rate: float) -> None:
        """Record bytes of blocks sent to a client, and the rate that it reported."""
        with self._lock:
            link = self._link(name)
            link.sent_bytes += size
            # The rate is the client's word: a wrong one must not reach the console.
            if math.isfinite(reported_rate) and reported_rate > 0:
                link.bytes_per_s = reported_rate

    def received(self, name: str, size: int) -> None:
        """Record bytes of blocks received from a client."""
        with self._lock:
            self._link(name).received_bytes += size

    def links(self) -> Mapping[str, ClientLink]:
        """Return the links by name."""
        with self._lock:
            return dict(self._links)

    def _link(self, name: str) -> ClientLink:
        link = self._links.get(name)
        if link is None:
            if len(self._links) >= MAX_LINKS:
                del self._links[next(iter(self._links))]
            link = self._links[name] = ClientLink()
        return link


TIMEOUT_S = 30.0
"""Maximum time from the end of one exchange to the end of the next message."""
MIN_BYTES_PER_S = 256 << 10
"""Minimum rate of a payload, whose time limit is TIMEOUT_S plus its size divided by this rate."""
GREETING_S = 5.0
"""Time limit of the whole handshake, including TLS."""
_WINDOW_BYTES = 64 << 20
MAX_CONNECTIONS = 256
MAX_UNPROVEN = 128
"""Additional connections during their handshake: all engines of a machine can connect at once."""
_MAX_THREADS = MAX_CONNECTIONS + 2 * MAX_UNPROVEN
"""More than connections: closed ones need a moment to end."""
REJECTIONS = ("unproved", "late", "displaced", "crowded", "slow")
"""Why connections were closed: no proof of the secret; too late; displaced by newer ones before their proof; too
many proven ones; payload too slow.
"""

ReadBlock = tuple[BlockFacts, memoryview]


class Incoming(Protocol):
    """Blocks whose bytes will be received."""

    @property
    def views(self) -> Sequence[tuple[int, memoryview | None]]:
        """Return each block's length and the destination of its bytes, None if it is already present."""

    def finish(self, checksums: Sequence[bytes]) -> Reply:
        """End the write with the checksums of received blocks. An empty one means that the bytes did not arrive."""


class TransferService(Protocol):
    """The server's interface to a node, called from many threads."""

    def reading(self, message: Get) -> AbstractContextManager[list[ReadBlock | None]]:
        """Yield as many of the first blocks as fit. They stay in place until the context ends."""

    def begin_put(self, message: Put) -> Incoming | TransferRejected:
        """Make room for blocks."""

    def begin_write(self, message: Write, payload_bytes: int) -> Incoming | TransferRejected:
        """Prepare to fill allocated blocks."""

    def answer(self, message: Message) -> Reply:
        """Execute a message without payload."""


class TransferServer:
    """Serves connections.

    Mutable state, guarded by `_lock`: `_connections`, those that proved the secret → whether within an exchange;
    `_unproven`, those in their handshake; and `_threads`, one per connection, including ending ones.
    """

    def __init__(
        self,
        service: TransferService,
        keyring: Keyring,
        identity: tuple[str, int],
        address: tuple[str, int],
        clock: Callable[[], float],
        tls: TlsFiles | None = None,
    ) -> None:
        self._service, self._keys, self._identity = service, keyring.keys(CONNECTIONS), identity
        self._clock = clock
        self._tls = FileTls(tls) if tls else None
        self._flow = FlowControl(_WINDOW_BYTES)
        self._connections: dict[Connection, bool] = {}
        self._unproven: Unproven[Connection] = Unproven(MAX_UNPROVEN, GREETING_S)
        self._threads = 0
        self._lock = threading.Condition()
        self._draining = False
        self.links = ClientLinks()
        self.rejected = Counter(dict.fromkeys(REJECTIONS, 0))
        """Number of closed connections by REJECTIONS code."""
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._listener = socket.create_server(address, family=family, backlog=128)
        # On the listener: accepted sockets inherit the buffers, and TCP fixes its window scale when they connect.
        large_buffers(self._listener)
        self.port = int(self._listener.getsockname()[1])

    def __len__(self) -> int:
        return len(self._connections)

    def start(self) -> None:
        """Start accepting connections."""
        threading.Thread(target=self._accept, name="kv-accept", daemon=True).start()

    def drain(self, timeout_s: float) -> bool:
        """Accept no new connections, wait for exchanges to end, and close. Return False if some were cut off."""
        with self._lock:
            self._draining = True
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            # Greetings cannot delay a drain.
            for connection in self._unproven.late(math.inf):
                connection.cut()
            for connection, within in self._connections.items():
                if not within:
                    # An idle connection waits for its next message, and ends; one within an exchange goes on.
                    connection.wake()
            ended = self._lock.wait_for(lambda: not self._connections, timeout_s)
            for connection in self._connections:
                connection.wake()
                connection.close()
        return ended

    def close_late(self) -> None:
        """Close connections past the deadline of their handshake or frame. Call once a second."""
        now = self._clock()
        with self._lock:
            late = self._unproven.late(now)
            slow = [item for item in self._connections if item.deadline <= now]
            self.rejected["late"] += len(late)
            self.rejected["slow"] += sum(self._connections[item] for item in slow)
            for connection in (*late, *slow):
                connection.deadline = math.inf
                connection.cut()

    def _accept(self) -> None:
        while not self._draining:
            try:
                sock, address = self._listener.accept()
            except OSError:
                # Out of descriptors: wait for one, rather than spin.
                with self._lock:
                    self._lock.wait(0.05)
                continue
            connection, host = Connection(sock), str(address[0])
            with self._lock:
                displaced = self._unproven.enter(connection, host, self._clock())
                if displaced is not None:
                    self.rejected["displaced"] += 1
                    displaced.cut()
                self._threads += 1
                # Accepting waits for threads to end, so that a flood of connections cannot exhaust them.
                self._lock.wait_for(lambda: self._threads <= _MAX_THREADS)
            threading.Thread(target=self._serve, args=(connection, host), name="kv-connection", daemon=True).start()

    def _serve(self, connection: Connection, host: str) -> None:
        try:
            with contextlib.suppress(OSError):
                client = self._greet(connection, host) or host
                while not self._draining:
                    self._limit(connection)
                    message, payload_bytes = connection.receive()
                    self._within(connection, within=True)
                    self._exchange(connection, client, message, payload_bytes)
                    self._within(connection, within=False)
        finally:
            connection.close()
            with self._lock:
                self._connections.pop(connection, None)
                self._threads -= 1
                self._lock.notify_all()

    def _greet(self, connection: Connection, host: str) -> str:
        """Authenticate the client at `host` and return its self-chosen name."""
        proved = False
        try:
            if self._tls is not None:
                connection.accept_tls(self._tls.fresh().server)
            name = connection.accept_client(self._keys, *self._identity, host)
            proved = True
        finally:
            with self._lock:
                counted = self._unproven.leave(connection)
                crowded = len(self._connections) >= MAX_CONNECTIONS
                if proved and counted and not crowded:
                    self._connections[connection] = False
                elif counted:
                    self.rejected["crowded" if proved else "unproved"] += 1
        if not counted or crowded:
            raise PeerError("the client proved the secret too late, or too many clients are connected")
        return name

    def _limit(self, connection: Connection, size: int = 0) -> None:
        """Limit the time for the client's next frame, or for sending it ours."""
        connection.deadline = self._clock() + TIMEOUT_S + size / MIN_BYTES_PER_S

    def _within(self, connection: Connection, *, within: bool) -> None:
        with self._lock:
            self._connections[connection] = within

    def _exchange(self, connection: Connection, client: str, message: Message, payload_bytes: int) -> None:
        # The node's own work may take longer.
        connection.deadline = math.inf
        if isinstance(message, Get):
            self._send_blocks(connection, client, message)
        elif isinstance(message, Put):
            self._receive_blocks(connection, self._service.begin_put(message), payload_bytes)
        elif isinstance(message, Write):
            self._receive_blocks(connection, self._service.begin_write(message, payload_bytes), payload_bytes)
        else:
            self._reply(connection, self._service.answer(message))
        if payload_bytes:
            self.links.received(client, payload_bytes)

    def _send_blocks(self, connection: Connection, client: str, message: Get) -> None:
        with self._service.reading(message) as read:
            blocks = [_part_of(item, message) for item in read] if message.length else read
            lengths = [-1 if item is None else len(item[1]) for item in blocks]
            checksums = [b"" if item is None else item[0].checksum for item in blocks]
            # Views into the arena: the bytes are sent without a copy.
            payload = [item[1] for item in blocks if item is not None]
            size = sum(map(len, payload))
            # A client cannot go ahead of requests with a negative number.
            with self._flow.moving(max(0, message.priority), size, TIMEOUT_S):
                self._reply(connection, Blocks(lengths, checksums), payload)
        if size:
            self.links.sent(client, size, message.bytes_per_s)

    def _reply(self, connection: Connection, message: Reply, payload: Sequence[memoryview] = ()) -> None:
        self._limit(connection, sum(map(len, payload)))
        connection.send(message, payload)

    def _receive_blocks(
        self, connection: Connection, incoming: Incoming | TransferRejected, payload_bytes: int
    ) -> None:
        self._limit(connection, payload_bytes)
        if isinstance(incoming, TransferRejected):
            # The payload is read anyway: the next message comes behind it on this connection.
            connection.discard(payload_bytes)
            self._reply(connection, incoming)
            return
        checksums: list[bytes] = []
        try:
            for length, view in incoming.views:
                if view is None:
                    connection.discard(length)
                else:
                    checksums.append(connection.receive_payload(view))
        except PeerError:
            # Empty checksums mark the blocks that did not arrive, which are then discarded.
            missing = sum(view is not None for _, view in incoming.views) - len(checksums)
            incoming.finish(checksums + [b""] * missing)
            raise
        self._reply(connection, incoming.finish(checksums))


def _part_of(block: ReadBlock | None, message: Get) -> ReadBlock | None:
    end = message.offset + message.length
    # A shorter block has no such part.
    return None if block is None or len(block[1]) < end else (block[0], block[1][message.offset : end])
