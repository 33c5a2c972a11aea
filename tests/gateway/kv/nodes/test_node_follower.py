"""A follower of a real node manager, or of a scripted one if the node must misbehave."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import zmq
from typing_extensions import override

from bench.live.loopback_ports import free_ports
from gateway.contracts.snapshot import KvNodeEntry
from gateway.kv.nodes.node_follower import FollowSettings, NodeFollower, NodeSink
from kvstore.events.kv_events import AllBlocksCleared, BlockStored, EventBatch, KvEvent, encode_batch
from kvstore.events.node_blocks import extra_key
from kvstore.keys.keyring import Keyring
from kvstore.node.node_manager import NodeManager
from kvstore.tiers.block_facts import BlockFacts
from kvstore.transfer.connection import Connection, PeerError
from kvstore.transfer.connection_pool import ConnectionPool
from kvstore.transfer.frames import ContentsPage, PageOf, Purge
from kvstore.transfer.handshake import CONNECTIONS
from kvstore.transfer.transfer_client import TransferClient
from tests.gateway.kv.nodes.loading_engine import block_of
from tests.gateway.ports import listen
from tests.kvstore.kv_blocks import KEYRING, a_client, address, key, node
from tests.patience import wait_until

QUICK = FollowSettings(timeout_s=0.5, beat_s=0.05, retry_min_s=0.02, retry_max_s=0.1)


class RecordingSink(NodeSink):
    """Record a follower's results as routing receives them."""

    def __init__(self) -> None:
        self.keys: set[int] = set()
        self.followed = False
        self.completions, self.clearings = 0, 0

    @override
    def changed(self, node: str, *, stored: bool, keys: list[int], dram: bool, held: int) -> None:
        (self.keys.update if stored else self.keys.difference_update)(keys)

    @override
    def cleared(self, node: str) -> None:
        self.keys.clear()
        self.followed = False
        self.clearings += 1

    @override
    def complete(self, node: str, blocks: int) -> None:
        assert blocks == len(self.keys)
        self.followed = True
        self.completions += 1


@contextmanager
def following(
    entry: KvNodeEntry, keyring: Keyring = KEYRING, settings: FollowSettings = QUICK
) -> Iterator[tuple[RecordingSink, NodeFollower]]:
    sink, context = RecordingSink(), zmq.Context()
    pool = ConnectionPool(keyring, time.monotonic, None, settings.timeout_s)
    follower = NodeFollower(entry, pool, context, sink, settings)
    follower.start()
    try:
        yield sink, follower
    finally:
        follower.stop()
        assert follower.join(10.0)
        pool.close()
        context.term()


@contextmanager
def a_node(directory: Path | None, ports: list[int], **changes: object) -> Iterator[tuple[NodeManager, KvNodeEntry]]:
    events_port, replay_port = ports
    sizes = {"dram_slots": 64, "ssd_slots": 64}
    with node(directory, slots=sizes, events_port=events_port, replay_port=replay_port, **changes) as manager:
        yield manager, entry_of(address(manager), ports)


def entry_of(where: str, ports: list[int]) -> KvNodeEntry:
    events_port, replay_port = ports
    return KvNodeEntry(
        name="n1",
        address=where,
        events_endpoint=f"tcp://127.0.0.1:{events_port}",
        replay_endpoint=f"tcp://127.0.0.1:{replay_port}" if replay_port else "",
    )


def put(client: TransferClient, manager: NodeManager, *keys: int) -> None:
    client.put(address(manager), [block_of(item, "acme") for item in keys])


def test_initial_contents_and_later_changes_are_known(tmp_path: Path) -> None:
    with a_node(tmp_path, free_ports(2)) as (manager, entry), a_client() as client:
        put(client, manager, 1, 2, 3)
        with following(entry) as (sink, _):
            wait_until(lambda: sink.followed)
            assert sink.keys == {1, 2, 3}
            put(client, manager, 4, 5)
            wait_until(lambda: sink.keys == {1, 2, 3, 4, 5})
            client.call(address(manager), Purge("acme"))
            wait_until(lambda: sink.keys == set())
            assert (sink.followed, sink.completions) == (True, 1)


def test_a_restarted_node_is_read_again(tmp_path: Path) -> None:
    ports = free_ports(3)
    with a_client() as client:
        with a_node(tmp_path, ports[:2], port=ports[2]) as (manager, entry):
            put(client, manager, 1, 2)
            follow = following(entry)
            sink, _ = follow.__enter__()
            wait_until(lambda: sink.keys == {1, 2} and sink.followed)
        wait_until(lambda: not sink.followed)
        assert sink.keys == set()
        with a_node(None, ports[:2], port=ports[2]) as (manager, _):
            put(client, manager, 7)
            wait_until(lambda: sink.followed and sink.keys == {7})
        follow.__exit__(None, None, None)


def test_nothing_is_read_without_the_secret(tmp_path: Path) -> None:
    with a_node(tmp_path, free_ports(2)) as (manager, entry), a_client() as client:
        put(client, manager, 1)
        with following(entry, Keyring.of(b"another secret")) as (sink, _):
            wait_until(lambda: manager.server.rejected["unproved"] >= 2)
            assert (sink.keys, sink.followed) == (set(), False)


def test_many_blocks_arrive_in_pages_and_one_replay() -> None:
    scripted = ScriptedNode()
    scripted.blocks = [facts(number) for number in range(1, 12_501)]
    with scripted.serving() as entry, following(entry, settings=FollowSettings(beat_s=60.0)) as (sink, _):
        wait_until(lambda: sink.followed)
        assert len(sink.keys) == 12_500
        assert (scripted.pages, scripted.replays) == (8, 1)


def facts(number: int) -> BlockFacts:
    return BlockFacts(key(number), 1000, key(number), routing_key=number)


def stored(*numbers: int) -> KvEvent:
    extra = [extra_key(number, key(number)) for number in numbers]
    return BlockStored(list(numbers), None, [], 16, medium="CPU", extra_keys=extra)


class ScriptedNode:
    """The part of a node's protocol that followers use, scripted by the test."""

    def __init__(self) -> None:
        self.blocks: list[BlockFacts] = []
        self.batches: list[bytes] = [encode_batch(EventBatch(0.0, [AllBlocksCleared()], 0))]
        self.kept = 0
        self.silent = self.deaf = self.stuck = False
        self.pages = self.replays = self.beats = 0
        self.on_page: Callable[[], None] = lambda: None
        self._pub: zmq.Socket[bytes] | None = None
        self._lock = threading.Lock()

    def publish(self, *events: KvEvent, lost: bool = False) -> None:
        """Publish a batch; a lost batch reaches no subscriber."""
        with self._lock:
            number, payload = len(self.batches), encode_batch(EventBatch(0.0, list(events), 0))
            self.batches.append(payload)
            if not lost and self._pub is not None:
                self._pub.send_multipart([b"kv@n1", number.to_bytes(8, "big"), payload])

    @contextmanager
    def serving(self) -> Iterator[KvNodeEntry]:
        """Serve on loopback."""
        listener, over, context = listen(), threading.Event(), zmq.Context()
        self._pub, replay = context.socket(zmq.PUB), context.socket(zmq.ROUTER)
        ports = [item.bind_to_random_port("tcp://127.0.0.1") for item in (self._pub, replay)]
        threads = [
            threading.Thread(target=self._accept, args=(listener, over)),
            threading.Thread(target=self._replay, args=(replay, over)),
        ]
        for thread in threads:
            thread.start()
        try:
            yield entry_of(f"127.0.0.1:{listener.getsockname()[1]}", ports)
        finally:
            over.set()
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
            for thread in threads:
                thread.join()
            for socket_ in (self._pub, replay):
                socket_.close(linger=0)
            context.term()

    def _accept(self, listener: socket.socket, over: threading.Event) -> None:
        while not over.is_set():
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(Connection(sock, 5.0),), daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        try:
            connection.accept_client(KEYRING.keys(CONNECTIONS), "n1", 1)
            while True:
                message, _ = connection.receive()
                assert isinstance(message, ContentsPage)
                while self.silent:
                    time.sleep(0.01)
                connection.send(self._page(message))
        except PeerError:
            connection.close()

    def _page(self, message: ContentsPage) -> PageOf:
        blocks = self.blocks[message.after : message.after + message.limit]
        with self._lock:
            published = len(self.batches)
        if message.after > len(self.blocks):
            self.beats += 1
        else:
            self.pages += 1
            self.on_page()
        next_after = message.after if self.stuck else message.after + len(blocks)
        return PageOf([(block, ["CPU"]) for block in blocks], next_after, published)

    def _replay(self, replay: zmq.Socket[bytes], over: threading.Event) -> None:
        while not over.is_set():
            if not replay.poll(20):
                continue
            peer, _, number = replay.recv_multipart()
            if self.deaf:
                continue
            self.replays += 1
            with self._lock:
                kept = list(enumerate(self.batches))[max(self.kept, int.from_bytes(number, "big")) :]
            for item, payload in kept:
                replay.send_multipart([peer, b"", b"kv@n1", item.to_bytes(8, "big"), payload])
            replay.send_multipart([peer, b"", b"kv@n1", b"\xff" * 8, b""])


@pytest.fixture
def scripted() -> ScriptedNode:
    made = ScriptedNode()
    made.blocks = [facts(1), facts(2)]
    return made


def test_events_published_while_pages_are_read_are_replayed(scripted: ScriptedNode) -> None:
    def once() -> None:
        scripted.on_page = lambda: None
        scripted.publish(stored(3), lost=True)

    scripted.on_page = once
    with scripted.serving() as entry, following(entry) as (sink, _):
        wait_until(lambda: sink.followed)
        assert sink.keys == {1, 2, 3}


def test_lost_events_are_detected_at_the_next_event(scripted: ScriptedNode) -> None:
    with scripted.serving() as entry, following(entry, settings=FollowSettings(beat_s=60.0)) as (sink, _):
        wait_until(lambda: sink.followed)
        scripted.publish(stored(3), lost=True)
        # A new subscriber may miss a message, so it is sent until one arrives.
        wait_until(lambda: bool(scripted.publish(stored(4))) or sink.keys == {1, 2, 3, 4})
        assert sink.completions == 1


def test_lost_events_are_detected_at_the_next_heartbeat(scripted: ScriptedNode) -> None:
    with scripted.serving() as entry, following(entry) as (sink, _):
        wait_until(lambda: sink.followed)
        scripted.publish(stored(3), lost=True)
        wait_until(lambda: sink.keys == {1, 2, 3})
        assert sink.completions == 1


def test_a_node_is_read_again_if_its_lost_events_are_not_retained(scripted: ScriptedNode) -> None:
    with scripted.serving() as entry, following(entry) as (sink, _):
        wait_until(lambda: sink.followed)
        scripted.blocks = [facts(5)]
        scripted.publish(stored(3), lost=True)
        scripted.publish(stored(5), lost=True)
        scripted.kept = 2
        wait_until(lambda: sink.completions == 2)
        assert sink.keys == {5}


def test_a_silent_node_holds_nothing_until_it_responds(scripted: ScriptedNode) -> None:
    with scripted.serving() as entry, following(entry) as (sink, _):
        wait_until(lambda: sink.followed)
        scripted.silent = True
        wait_until(lambda: not sink.followed)
        assert sink.keys == set()
        scripted.silent = False
        wait_until(lambda: sink.followed)
        assert sink.keys == {1, 2}


def test_a_node_without_replay_is_never_considered_known(scripted: ScriptedNode) -> None:
    scripted.deaf = True
    with scripted.serving() as entry, following(entry) as (sink, _):
        wait_until(lambda: scripted.pages >= 4)
        assert (sink.followed, sink.completions) == (False, 0)


def test_a_node_whose_paging_stalls_is_never_considered_known(scripted: ScriptedNode) -> None:
    scripted.stuck = True
    with scripted.serving() as entry, following(entry) as (sink, _):
        wait_until(lambda: scripted.pages >= 4)
        assert (sink.followed, sink.completions) == (False, 0)
        scripted.stuck = False
        wait_until(lambda: sink.followed)
        assert sink.keys == {1, 2}


def test_a_failed_follower_leaves_no_blocks_that_count(scripted: ScriptedNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    with scripted.serving() as entry, following(entry) as (sink, follower):
        wait_until(lambda: sink.followed)

        def breaks(*_: object) -> bool:
            raise RuntimeError("a fault of ours")

        monkeypatch.setattr(follower, "_beat", breaks)
        wait_until(lambda: not sink.followed)
        assert follower.join(10.0)
        assert sink.keys == set()


def test_a_node_whose_sequence_restarts_is_read_again(scripted: ScriptedNode) -> None:
    with scripted.serving() as entry, following(entry) as (sink, _):
        wait_until(lambda: sink.followed)
        for _ in range(3):
            scripted.publish(stored(3), lost=True)
        wait_until(lambda: sink.keys == {1, 2, 3})
        scripted.batches = scripted.batches[:1]
        scripted.blocks = [facts(9)]
        wait_until(lambda: sink.followed and sink.keys == {9})


def test_an_unreadable_event_causes_the_node_to_be_read_again(scripted: ScriptedNode) -> None:
    with scripted.serving() as entry, following(entry) as (sink, _):
        wait_until(lambda: sink.followed)
        with scripted._lock:
            scripted.batches.append(b"garbage")
        wait_until(lambda: sink.completions >= 2)
        assert sink.keys == {1, 2}
