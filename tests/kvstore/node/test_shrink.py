"""Nodes drop cold copies, but never the last one, whatever messages are lost, and never one that is in use."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from kvstore.node.block_store import BlockStore
from kvstore.node.node_service import NodeService
from kvstore.tiers.block_facts import BlockFacts
from kvstore.transfer.connection import PeerError
from kvstore.transfer.flow_control import FlowPriority
from kvstore.transfer.frames import (
    Allocate,
    Commit,
    Done,
    Get,
    Message,
    Pin,
    Pull,
    Put,
    Reply,
    Shrink,
    TransferRejected,
)
from kvstore.transfer.transfer_client import Fetched, Received, Wanted
from tests.kvstore.kv_blocks import a_client, address, block, catalog_settings, key, node
from tests.kvstore.transfer.test_transfer import contents, put

NODES = ("a", "b", "c")


class Network:
    """Nodes in one process without sockets: calls are lost before or after their effect, and nodes with their blocks.

    Mutable: the nodes, the time, and the event within a call.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.now, self.number = rng, 0.0, 0
        self.stores: dict[str, BlockStore] = {}
        self.services: dict[str, NodeService] = {}
        self.meanwhile: Callable[[], None] = lambda: None
        self.loses = 0.0
        self.dropped = 0
        for name in NODES:
            self.start(name)

    def start(self, name: str) -> None:
        """Start a node without blocks."""
        self.number += 1
        store = BlockStore(catalog_settings(dram_slots=10, ssd_slots=0), None, lambda: self.now, 0.0, self.number)
        shrink = store.shrink

        def watched(keys: Sequence[bytes], unread_s: float, until: float) -> list[BlockFacts]:
            wanted = {
                item for item in keys if (record := store.catalog.find(item)) and (record.pinned_until or record.locks)
            }
            dropped = shrink(keys, unread_s, until)
            self.dropped += len(dropped)
            for item in dropped:
                others = [self.stores[other].catalog.find(item.key) for other in NODES if other != name]
                assert any(record is not None and record.visible for record in others), "the last copy is gone"
                assert item.key not in wanted
            return dropped

        store.shrink = watched  # type: ignore[method-assign]
        self.stores[name] = store
        self.services[name] = NodeService(store, _Client(self), lambda: 0)  # type: ignore[arg-type]

    def put(self, name: str, blocks: Sequence[BlockFacts]) -> None:
        """Store blocks on a node."""
        coming = self.services[name].begin_put(Put(list(blocks)))
        if not isinstance(coming, TransferRejected):
            for (_, view), facts in zip(coming.views, blocks, strict=True):
                if view is not None:
                    view[:] = block_bytes(facts)
            coming.finish([facts.checksum for facts, (_, view) in zip(blocks, coming.views, strict=True) if view])

    def call(self, name: str, message: Message) -> Reply:
        """Call a node from outside."""
        return self.services[name].answer(message)

    def check(self) -> None:
        for store in self.stores.values():
            store.catalog.check()
            store.transactions.check()


class _Client:
    """A node's client for calls to other nodes."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def call(self, name: str, message: Message) -> Reply:
        network = self._network
        network.meanwhile()
        if network.rng.random() < network.loses:
            raise PeerError("lost before it came")
        answer = network.services[name].answer(message)
        network.meanwhile()
        if network.rng.random() < network.loses:
            if network.rng.random() < 0.3:
                network.start(name)
            raise PeerError("lost behind it")
        return answer

    def get(self, holders: list[str], wanted: list[Wanted], _: FlowPriority) -> Received:
        fetched: list[Fetched | None] = []
        with self._network.services[holders[0]].reading(Get([item.key for item in wanted], 1 << 20)) as blocks:
            for got, asked in zip(blocks, wanted, strict=True):
                if got is not None and asked.into is not None:
                    asked.into[:] = got[1]
                fetched.append(Fetched(got[1], got[0].checksum) if got is not None else None)
        return Received(fetched, {})


def block_bytes(of: BlockFacts) -> memoryview:
    return next(payload for facts, payload in BLOCKS if facts.key == of.key)


PROMPTS = [[f"{prompt}.{at}" for at in range(3)] for prompt in range(5)]
BLOCKS = [block(name, names[at - 1] if at else None) for names in PROMPTS for at, name in enumerate(names)]
FACTS = {name: facts for name, (facts, _) in zip((name for names in PROMPTS for name in names), BLOCKS, strict=True)}


def anything(network: Network) -> None:
    """Let one random event happen to one node."""
    rng = network.rng
    name, other = rng.sample(NODES, 2)
    names = rng.choice(PROMPTS)[: rng.randrange(1, 4)]
    keys, what = [key(item) for item in names], rng.random()
    if what < 0.3:
        network.put(name, [FACTS[item] for item in names])
    elif what < 0.5:
        network.call(name, Pull(other, [FACTS[item] for item in names]))
    elif what < 0.8:
        network.call(name, Shrink(rng.choice([other, name]), keys, rng.choice([0.0, 3.0])))
    elif what < 0.88:
        network.call(name, Pin(keys, rng.choice([0.0, 5.0])))
    elif what < 0.95:
        network.call(name, Allocate(f"t-{rng.randrange(10**9)}", keys, [], 4.0))
    else:
        network.now += rng.choice([0.1, 2.0, 40.0])
        for store in network.stores.values():
            store.tick()


@pytest.mark.parametrize("seed", range(12))
def test_no_order_and_no_loss_removes_the_last_copy(seed: int) -> None:
    network = Network(random.Random(seed))
    network.loses = 0.1
    deep = 0

    def meanwhile() -> None:
        nonlocal deep
        if deep < 3 and network.rng.random() < 0.3:
            deep += 1
            try:
                anything(network)
            finally:
                deep -= 1

    network.meanwhile = meanwhile
    for _ in range(600):
        anything(network)
        network.check()
    assert network.dropped > 5


def test_two_nodes_that_drop_in_favor_of_each_other_do_not_both_drop() -> None:
    network = Network(random.Random(0))
    names = PROMPTS[0]
    for name in "ab":
        network.put(name, [FACTS[item] for item in names])
    keys, inner = [key(item) for item in names], list[Reply]()

    def other_way() -> None:
        network.meanwhile = lambda: None
        inner.append(network.call("b", Shrink("a", keys, 0.0)))

    def once_locked() -> None:
        if len(network.stores["b"].transactions):
            other_way()

    network.meanwhile = once_locked
    outer = network.call("a", Shrink("b", keys, 0.0))
    assert (inner, outer) == ([Done(0, keys)], Done(3))
    assert [len(network.stores[name].catalog) for name in "ab"] == [0, 3]
    assert not any(len(store.transactions) for store in network.stores.values())


def test_blocks_that_are_read_pinned_locked_or_extended_by_others_stay() -> None:
    network = Network(random.Random(0))
    names = PROMPTS[0]
    keys = [key(item) for item in names]
    for name in "ab":
        network.put(name, [FACTS[item] for item in names])
    network.now = 100.0
    network.stores["a"].tick()
    with network.services["a"].reading(Get(keys[:1], 1 << 20)):
        assert network.call("a", Shrink("b", keys, 50.0)) == Done(2, keys[:1])
    assert network.call("a", Shrink("b", keys[:1], 50.0)) == Done(0, keys[:1]), "it was read a moment ago"
    network.put("a", [FACTS[item] for item in names])
    network.now = 200.0
    for store in network.stores.values():
        store.tick()
    assert network.call("a", Shrink("b", keys[:2], 50.0)) == Done(0, keys[:2]), "the third block follows"
    network.call("a", Pin(keys[2:], 60.0))
    assert network.call("a", Shrink("b", keys, 50.0)) == Done(0, keys)
    network.call("a", Pin(keys[2:], 0.0))
    network.now = 300.0
    network.stores["a"].tick()
    network.call("a", Allocate("mine", keys[2:], [], 30.0))
    assert network.call("a", Shrink("b", keys, 50.0)) == Done(0, keys)
    network.call("a", Commit("mine"))
    assert network.call("a", Shrink("b", keys, 50.0)) == Done(3)


def test_a_holder_that_lacks_the_block_is_dead_or_is_the_node_itself_allows_no_drop() -> None:
    network = Network(random.Random(0))
    names = PROMPTS[0]
    keys = [key(name) for name in names]
    network.put("a", [FACTS[name] for name in names])
    network.put("b", [FACTS[name] for name in names[:2]])
    assert network.call("a", Shrink("b", keys, 0.0)) == TransferRejected("holder", keys[2:])
    assert network.call("a", Shrink("a", keys, 0.0)) == Done(0, keys)
    network.loses = 1.0
    assert network.call("a", Shrink("b", keys[:2], 0.0)) == TransferRejected("holder")
    assert len(network.stores["a"].catalog) == 3


def test_a_corrupt_remote_copy_does_not_count() -> None:
    with node() as target, node() as holder, a_client() as client:
        for item in (target, holder):
            put(client, item, "x")
        record = holder.store.catalog.find(key("x"))
        assert record is not None
        holder.store.arena.view(record.slots["CPU"], 1)[0] ^= 1
        shrink = Shrink(address(holder), [key("x")], 0.0)
        assert client.call(address(target), shrink) == TransferRejected("holder", [key("x")])
        assert holder.store.counts.corrupt["CPU"] == 1
        put(client, holder, "x")
        assert client.call(address(target), shrink) == Done(1)
        assert contents(client, [address(target)], ["x"]) == [None]
        assert contents(client, [address(holder)], ["x"]) != [None]
        assert target.store.counts.shrunk == 1
        assert not holder.store.transactions
