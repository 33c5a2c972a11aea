"""The table of nodes as snapshots change it, with followers scripted by the test."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path

import msgspec
import pytest

from bench.live.loopback_ports import free_ports
from gateway.base.metrics import GatewayMetrics
from gateway.contracts.snapshot import KvNodeEntry
from gateway.kv.moves.block_mover import BlockMover
from gateway.kv.nodes import kv_nodes
from gateway.kv.nodes.kv_nodes import KvNodes
from gateway.kv.nodes.node_follower import NodeFollower, NodeSink
from kvstore.keys.keyring import Keyring
from kvstore.transfer.flow_control import FlowPriority
from kvstore.transfer.shared_secret import NodeAccess
from tests.kvstore.kv_blocks import KEYRING, a_client, address, block, node
from tests.kvstore.transfer.test_transfer import certificates
from tests.patience import until


class Scripted(NodeFollower):
    """A follower that starts nothing; the test reports in its name, from any thread."""

    def __init__(self, entry: KvNodeEntry, sink: NodeSink) -> None:
        self.entry, self.sink = entry, sink
        self.begun = self.over = False
        self.held: set[int] = set()

    def start(self) -> None:
        self.begun = True

    def stop(self) -> None:
        self.over = True

    def join(self, seconds: float) -> bool:
        return self.over

    async def reports(self, *keys: int, stored: bool = True) -> None:
        (self.held.update if stored else self.held.difference_update)(keys)
        held = len(self.held)
        await asyncio.to_thread(
            self.sink.changed, self.entry.name, stored=stored, keys=list(keys), dram=stored, held=held
        )

    async def completes(self, blocks: int) -> None:
        await asyncio.to_thread(self.sink.complete, self.entry.name, blocks)


class Nodes(KvNodes):
    """Nodes with scripted followers."""

    def __init__(self, keyring: Keyring | None = KEYRING) -> None:
        self.made: list[Scripted] = []
        self.metrics = GatewayMetrics()
        super().__init__(NodeAccess(keyring), self.metrics, follow=self._scripted)

    def _scripted(self, entry: KvNodeEntry, sink: NodeSink) -> NodeFollower:
        self.made.append(Scripted(entry, sink))
        return self.made[-1]

    def names(self, *keys: int) -> list[str]:
        return [name for _, nodes in self.holdings.match(keys).groups for name in self.holdings.names(nodes)]


def entry(name: str, **fields: str) -> KvNodeEntry:
    known = {"address": f"127.0.0.1:{len(name)}", "events_endpoint": "tcp://127.0.0.1:1"}
    return KvNodeEntry(name=name, slot_bytes=4096, **{**known, **fields})  # type: ignore[arg-type]


async def test_a_node_counts_once_its_contents_are_completely_known() -> None:
    nodes = Nodes()
    nodes.apply([entry("a")])
    (follower,) = nodes.made
    await follower.reports(1, 2)
    await until(lambda: len(nodes.holdings) == 2)
    assert nodes.names(1, 2) == []
    assert b'headway_kv_node_followed{node="a"} 0.0' in nodes.metrics.render()
    await follower.completes(2)
    await until(lambda: nodes.names(1, 2) == ["a"])
    assert b'headway_kv_node_followed{node="a"} 1.0' in nodes.metrics.render()
    assert b'headway_kv_node_blocks{node="a"} 2.0' in nodes.metrics.render()
    await follower.reports(2, stored=False)
    await until(lambda: b'headway_kv_node_blocks{node="a"} 1.0' in nodes.metrics.render())
    nodes.holdings.check()
    await nodes.stop()
    assert follower.over


async def test_a_snapshot_with_the_same_nodes_disturbs_none() -> None:
    nodes = Nodes()
    nodes.apply([entry("a"), entry("b")])
    nodes.apply([entry("b"), entry("a")])
    assert [(item.begun, item.over) for item in nodes.made] == [(True, False)] * 2
    assert nodes.slot_bytes() == {"a": 4096, "b": 4096}


@pytest.mark.parametrize(
    "after",
    [
        [],
        [entry("a", state="draining")],
        [entry("a", events_endpoint="")],
        [entry("a", address="127.0.0.1:99")],
    ],
)
async def test_a_node_that_is_removed_drained_or_moved_is_forgotten(after: list[KvNodeEntry]) -> None:
    nodes = Nodes()
    nodes.apply([entry("a")])
    first = nodes.made[0]
    await first.reports(1)
    await first.completes(1)
    await until(lambda: nodes.names(1) == ["a"])
    nodes.apply(after)
    assert (nodes.names(1), first.over) == ([], True)
    # Later results of its follower come too late.
    await first.reports(1)
    await first.completes(1)
    await asyncio.sleep(0)
    assert nodes.names(1) == []
    nodes.holdings.check()


async def test_without_the_secret_no_node_is_followed_and_this_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    nodes = Nodes(None)
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            nodes.apply([entry("a")])
    assert (nodes.made, nodes.entries) == ([], {})
    assert [record.getMessage() for record in caplog.records if "kv_nodes_not_followed" in record.getMessage()] != []
    assert sum("kv_nodes_not_followed" in record.getMessage() for record in caplog.records) == 1


async def test_addresses_and_names_map_both_ways() -> None:
    nodes = Nodes()
    nodes.apply([entry("a"), entry("bb")])
    assert nodes.addresses(["bb", "gone", "a"]) == ["127.0.0.1:2", "127.0.0.1:1"]
    assert [nodes.name_at(name) for name in ("127.0.0.1:2", "bb", "127.0.0.1:3", "")] == ["bb", "bb", "", ""]


async def test_a_follower_waits_for_a_busy_loop_and_stops_when_the_loop_closes() -> None:
    nodes = Nodes()
    nodes.apply([entry("a")])
    (follower,) = nodes.made
    ahead = threading.Event()

    def floods() -> None:
        for number in range(100):
            follower.sink.changed("a", stored=True, keys=[number + 1], dram=True, held=number + 1)
        ahead.set()

    thread = threading.Thread(target=floods)
    thread.start()
    # The loop does not turn here, so that the follower stalls before long.
    assert not ahead.wait(0.3)
    nodes.apply([])
    assert await asyncio.to_thread(ahead.wait, 10.0)
    thread.join()
    assert len(nodes.holdings) == 0


async def test_the_number_of_nodes_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_nodes, "MAX_NODES", 2)
    nodes = Nodes()
    nodes.apply([entry("c"), entry("a"), entry("b")])
    assert sorted(nodes.entries) == ["a", "b"]


async def test_a_node_behind_tls_is_followed_only_with_certificates(tmp_path: Path) -> None:
    files = certificates(tmp_path)
    events_port, replay_port = free_ports(2)
    with (
        node(tls=files, events_port=events_port, replay_port=replay_port) as manager,
        a_client(tls=files) as client,
    ):
        facts, data = block("a")
        client.put(address(manager), [(msgspec.structs.replace(facts, routing_key=7), data)])
        held = entry(
            "n1",
            address=address(manager),
            events_endpoint=f"tcp://127.0.0.1:{events_port}",
            replay_endpoint=f"tcp://127.0.0.1:{replay_port}",
        )
        followed, bare = (KvNodes(NodeAccess(KEYRING, tls), GatewayMetrics()) for tls in (files, None))
        for nodes in (followed, bare):
            nodes.apply([held])
        try:
            await until(lambda: followed.holdings.is_readable("n1") and followed.holdings.holds("n1", 7))
            assert not bare.holdings.is_readable("n1")
        finally:
            await followed.stop()
            await bare.stop()


def test_blocks_move_between_nodes_behind_tls(tmp_path: Path) -> None:
    files = certificates(tmp_path)
    with node(tls=files) as source, node(tls=files, node_id="n2") as target, a_client(tls=files) as client:
        facts, data = block("a")
        client.put(address(source), [(msgspec.structs.replace(facts, routing_key=7), data)])
        for tls, outcome in ((files, "moved"), (None, "failed")):
            mover = BlockMover(NodeAccess(KEYRING, tls))
            try:
                assert mover.move(address(source), address(target), [7], FlowPriority.PREFETCH).outcome == outcome
            finally:
                mover.close()
        assert target.store.catalog.find(facts.key) is not None
