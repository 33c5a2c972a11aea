"""Publish the blocks that a node stores and removes, in the form of the engines' KV events (kvstore.events.kv_events).

Blocks carry the engine's hashes as engines publish them (the low 64 bits), their medium (CPU or STORAGE), and in
`extra_keys` their names at a gateway (kvstore.events.node_blocks). They contain neither token ids, which are not
stored, nor parents. As engines do, a node numbers its batches from 0 and replays the latest ones. A listener gets
earlier contents with `Page`: it subscribes, requests all pages, and applies every batch from the number in the first
page on. Blocks are named individually and set, not counted, so an event already contained in a page changes nothing.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import groupby

import zmq

from kvstore.events.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, EventBatch, KvEvent, encode_batch
from kvstore.events.node_blocks import extra_key
from kvstore.node.event_ports import GuardedPort
from kvstore.transactions.block_record import BlockChange

_MAX_BATCHES = 10_000
_MAX_CHANGES = 4096
"""Maximum changes per batch: a starting node publishes all blocks on its SSD."""
_POLL_MS = 10
_END = (-1).to_bytes(8, "big", signed=True)


def kv_events(changes: Sequence[BlockChange]) -> list[KvEvent]:
    """Return changes as events, adjacent ones of one kind combined. Blocks without an engine's hash are omitted."""
    named = (change for change in changes if change.facts.chain_hash)
    return [_event(list(group)) for _, group in groupby(named, _kind)]


def _kind(change: BlockChange) -> tuple[str, str, int]:
    return change.kind, change.medium, change.facts.tokens


def _event(changes: list[BlockChange]) -> KvEvent:
    hashes: list[int | bytes] = [int.from_bytes(change.facts.chain_hash[-8:], "big") for change in changes]
    keys = [extra_key(change.facts.routing_key, change.facts.key) for change in changes]
    extra_keys = keys if any(keys) else None
    first = changes[0]
    if first.kind == "stored":
        return BlockStored(hashes, None, [], first.facts.tokens, medium=first.medium, extra_keys=extra_keys)
    return BlockRemoved(hashes, first.medium, extra_keys)


class NodeEvents:
    """Publishes events. One thread owns the sockets; `add` can be called under the store's lock. Silent without a port.

    Mutable state: `_batches` (numbered batches kept for replay) and `published`, guarded by `_lock`.
    """

    def __init__(self, host: str, port: int, replay_port: int, topic: str, epoch: Callable[[], float]) -> None:
        self._epoch, self._topic = epoch, topic.encode()
        self._lock = threading.Lock()
        self._batches: deque[tuple[bytes, bytes]] = deque(maxlen=_MAX_BATCHES)
        self._unsent: deque[tuple[bytes, bytes]] = deque()
        self.published = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._ports: list[GuardedPort] = []
        if port:
            context = zmq.Context(io_threads=1)
            pub, replay = context.socket(zmq.PUB), context.socket(zmq.ROUTER)
            self._ports = [GuardedPort(pub), GuardedPort(replay)]
            for socket, number in ((pub, port), (replay, replay_port)):
                # A whole replay and its end mark must fit, or ZMQ would silently drop the rest of it.
                socket.sndhwm = 2 * _MAX_BATCHES + 2
                socket.bind(f"tcp://{host}:{number}")
            self._thread = threading.Thread(
                target=self._run, args=(context, pub, replay), name="kv-events", daemon=True
            )
            self._thread.start()
        # Batches are numbered from 0 again: a listener must forget what the process before this one published.
        self._add([AllBlocksCleared()])

    def add(self, changes: Sequence[BlockChange]) -> None:
        """Publish changes in call order."""
        for begin in range(0, len(changes), _MAX_CHANGES):
            self._add(kv_events(changes[begin : begin + _MAX_CHANGES]))

    def close(self) -> None:
        """Publish that all blocks are removed, and stop."""
        self._add([AllBlocksCleared()])
        self._stop.set()
        if self._thread is not None:
            self._thread.join(5.0)

    def _add(self, events: list[KvEvent]) -> None:
        if not events:
            return
        payload = encode_batch(EventBatch(self._epoch(), events, 0))
        with self._lock:
            batch = self.published.to_bytes(8, "big"), payload
            self.published += 1
            self._batches.append(batch)
            if self._thread is not None:
                self._unsent.append(batch)

    def _run(self, context: zmq.Context[zmq.Socket[bytes]], pub: zmq.Socket[bytes], replay: zmq.Socket[bytes]) -> None:
        stopping = False
        while not stopping:
            # Read before the queue is emptied, so that nothing added before the stop stays unsent.
            stopping = self._stop.is_set()
            for guarded in self._ports:
                guarded.guard()
            while self._unsent:
                pub.send_multipart((self._topic, *self._unsent.popleft()))
            if replay.poll(0 if stopping else _POLL_MS):
                frames = replay.recv_multipart()
                if len(frames) == 3 and not frames[1] and len(frames[2]) == 8:
                    with self._lock:
                        wanted = [batch for batch in self._batches if batch[0] >= frames[2]]
                    for number, payload in [*wanted, (_END, b"")]:
                        replay.send_multipart((frames[0], b"", self._topic, number, payload), flags=zmq.NOBLOCK)
        for guarded in self._ports:
            guarded.close()
        for item in (pub, replay):
            # The last batch, which clears all blocks, has this long (ms) to leave.
            item.close(linger=200)
        context.term()
