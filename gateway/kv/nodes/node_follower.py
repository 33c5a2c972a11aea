"""Follows one node manager: reads its contents by pages, then its events, in a separate thread.

The connection used for paging stays open, and a sign of life is requested every second. The connection ends with the
node's process, so a restarted or lost node is never mistaken for the node whose blocks are known. Missed events are
replayed. If the node no longer has them, its contents are read again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import msgspec
import zmq

from gateway.base.event_log import log_event
from gateway.contracts.snapshot import KvNodeEntry
from gateway.kv.nodes.node_contents import ContentsChange, NodeContents
from kvstore.events.kv_events import UnreadableEventError, decode_batch
from kvstore.transfer.connection import Connection, PeerError
from kvstore.transfer.connection_pool import ConnectionPool
from kvstore.transfer.frames import ContentsPage, PageOf

_SEQ_BYTES = 8
_END = b"\xff" * _SEQ_BYTES
_POLL_S = 0.2
"""Maximum seconds until a stopped follower ends."""
_PAST_ALL = 1 << 62
"""A page that starts at this number is empty, and states the number of event batches."""


class NodeSink(Protocol):
    """Receives changes of nodes' contents. Called in order, from the follower's thread."""

    def changed(self, node: str, *, stored: bool, keys: list[int], dram: bool, held: int) -> None:
        """Add these blocks (in DRAM or only on SSD) or remove them. `held` is the resulting number of blocks.

        The call can wait until the change is applied.
        """

    def cleared(self, node: str) -> None:
        """Drop all data about the node."""

    def complete(self, node: str, blocks: int) -> None:
        """Record that all of the node's contents were reported: this many blocks."""


class FollowSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one follower."""

    timeout_s: float = 3.0
    """Longest silence of a node after a query."""
    beat_s: float = 1.0
    """Interval between two signs of life."""
    retry_min_s: float = 0.2
    retry_max_s: float = 5.0
    """Maximum pause before a failed node is tried again. The pause doubles up to this value."""
    page_blocks: int = 2048
    max_blocks: int = 500_000
    """Limit of blocks stored per node."""
    max_batch_bytes: int = 16 << 20


class NodeFollower:
    """Follows one node. Mutable: its contents, whether it reported any, and the next expected batch, all used only on
    its thread.
    """

    def __init__(
        self,
        entry: KvNodeEntry,
        pool: ConnectionPool,
        context: zmq.Context[zmq.Socket[bytes]],
        sink: NodeSink,
        settings: FollowSettings | None = None,
    ) -> None:
        self.entry = entry
        self._pool, self._context, self._sink = pool, context, sink
        self._settings = settings or FollowSettings()
        self._contents = NodeContents(self._settings.max_blocks)
        self._expected, self._reported = 0, False
        self._connection: Connection | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self.run, name=f"kv-node-{entry.name}", daemon=True)

    def start(self) -> None:
        """Start to follow the node."""
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end."""
        self._stopping.set()
        connection = self._connection
        if connection is not None:
            connection.wake()

    def join(self, seconds: float) -> bool:
        """Wait for the thread; return whether it has ended within this time."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def run(self) -> None:
        """Follow until stopped. The contents of a failed node are removed, and the node is tried again."""
        try:
            self._run()
        finally:
            # Whatever ends the thread, contents without a follower must not count.
            self._forget()

    def _run(self) -> None:
        pause_s, failing = self._settings.retry_min_s, False
        while not self._stopping.is_set():
            try:
                with self._connected() as connection, self._socket(zmq.SUB) as events:
                    self._follow(connection, events)
            except (PeerError, zmq.ZMQError, UnreadableEventError) as error:
                if not failing and not self._stopping.is_set():
                    level, node = logging.WARNING, self.entry.name
                    log_event("kv_node_not_followed", level=level, node=node, reason=str(error))
                failing, pause_s = True, self._settings.retry_min_s if self._reported else pause_s
            self._forget()
            self._stopping.wait(pause_s)
            pause_s = min(2 * pause_s, self._settings.retry_max_s)

    def _follow(self, connection: Connection, events: zmq.Socket[bytes]) -> None:
        """Read the node, and again whenever events are permanently lost; raise PeerError when it is gone."""
        events.setsockopt(zmq.SUBSCRIBE, b"")
        # Before the pages are read: events from then on wait in the socket.
        events.connect(self.entry.events_endpoint)
        while not self._stopping.is_set():
            self._expected = self._read(connection)
            # ZeroMQ subscribes some time after connect(); what was published until then is replayed.
            if not self._stopping.is_set() and self._replay():
                self._reported = True
                self._sink.complete(self.entry.name, len(self._contents))
                self._receive(connection, events)
            self._forget()
            self._stopping.wait(self._settings.retry_min_s)

    def _read(self, connection: Connection) -> int:
        """Read the node by pages; return the number of event batches before the first page."""
        after, published = 0, -1
        while not self._stopping.is_set():
            page = self._ask(connection, ContentsPage(after, self._settings.page_blocks))
            published = page.events if published < 0 else published
            if not page.blocks:
                break
            if page.next_after <= after:
                raise PeerError("the node's pages do not advance")
            after = page.next_after
            for change in self._contents.page(page.blocks):
                self._report(change)
        return published

    def _receive(self, connection: Connection, events: zmq.Socket[bytes]) -> None:
        """Apply events as they arrive; return when some are permanently lost."""
        beats_at = time.monotonic() + self._settings.beat_s
        while not self._stopping.is_set():
            wait_s = beats_at - time.monotonic()
            if wait_s <= 0:
                if not self._beat(connection):
                    return
                beats_at = time.monotonic() + self._settings.beat_s
            # At least 1 ms, because poll(0) would spin.
            elif events.poll(int(1000 * min(wait_s, _POLL_S)) + 1):
                frames = events.recv_multipart()
                if len(frames) != 3 or len(frames[1]) != _SEQ_BYTES:
                    raise UnreadableEventError("a message does not have three frames")
                if not self._take(int.from_bytes(frames[1], "big"), frames[2]) and not self._replay():
                    return

    def _beat(self, connection: Connection) -> bool:
        """Request a sign of life. Return False if events are permanently lost."""
        published = self._ask(connection, ContentsPage(_PAST_ALL, 1)).events
        if published < self._expected:
            raise PeerError("the node has published fewer events than were received: it has restarted")
        # A batch published a moment ago may still be on its way; requesting it does no harm.
        return published == self._expected or self._replay()

    def _take(self, number: int, payload: bytes) -> bool:
        """Apply a batch if it is the next one. Return False if earlier ones are missing."""
        if number > self._expected:
            return False
        if number == self._expected:
            self._expected += 1
            for change in self._contents.apply(decode_batch(payload)):
                if change.keys is None:
                    # It is about to end, or to begin: its contents by then are read again.
                    raise PeerError("the node has dropped everything")
                self._report(change)
        return True

    def _replay(self) -> bool:
        """Apply the batches published since the expected one. Return False if they are no longer available."""
        if not self.entry.replay_endpoint:
            return False
        with self._socket(zmq.DEALER) as socket:
            socket.connect(self.entry.replay_endpoint)
            socket.send_multipart([b"", self._expected.to_bytes(_SEQ_BYTES, "big")])
            ends_at = time.monotonic() + self._settings.timeout_s
            while socket.poll(max(0, int(1000 * (ends_at - time.monotonic())))):
                frames = socket.recv_multipart()
                if len(frames) < 2 or len(frames[-2]) != _SEQ_BYTES:
                    raise UnreadableEventError("a replayed message has no number")
                if frames[-2] == _END:
                    return True
                if self._stopping.is_set() or not self._take(int.from_bytes(frames[-2], "big"), frames[-1]):
                    return False
                ends_at = time.monotonic() + self._settings.timeout_s
        raise PeerError("the node does not replay its events")

    def _ask(self, connection: Connection, message: ContentsPage) -> PageOf:
        connection.send(message)
        answer, _ = connection.receive()
        if not isinstance(answer, PageOf):
            raise PeerError("the node answered a page request with another message")
        return answer

    def _report(self, change: ContentsChange) -> None:
        if change.keys:
            self._reported = True
            stored, dram, held = change.stored, change.dram, len(self._contents)
            self._sink.changed(self.entry.name, stored=stored, keys=change.keys, dram=dram, held=held)

    def _forget(self) -> None:
        self._contents.clear()
        if self._reported:
            self._reported = False
            self._sink.cleared(self.entry.name)

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        connection, _ = self._pool.take(self.entry.address)
        self._connection = connection
        try:
            yield connection
        finally:
            self._connection = None
            connection.close()

    @contextmanager
    def _socket(self, kind: int) -> Iterator[zmq.Socket[Any]]:
        socket = self._context.socket(kind)
        try:
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.MAXMSGSIZE, self._settings.max_batch_bytes)
            socket.setsockopt(zmq.RCVHWM, 10_000)
            socket.setsockopt(zmq.RECONNECT_IVL, 100)
            socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)
            yield socket
        finally:
            socket.close(linger=0)


Follow = Callable[[KvNodeEntry, NodeSink], NodeFollower]
"""Creates the follower of a node; the caller starts it."""
