"""No order, duplicate, loss or kill of events loses the only copy of a block or leaks a reservation.

A copy that an advisory brought may be the only one too: its source may have let its own go, or have ended.

The gateway's own parts decide; nodes are their catalogs and transactions, and the network is a list of messages that
come late, twice, in another order or not at all.
"""

from __future__ import annotations

import asyncio
import copy
import random
import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from typing_extensions import override

from gateway.base.metrics import GatewayMetrics
from gateway.contracts.advisory import Advisory
from gateway.contracts.kv_move import FAILED, FREED, KEPT, MISSING, MOVED
from gateway.contracts.snapshot import KvNodeEntry
from gateway.kv.moves.block_mover import Mover, Part
from gateway.kv.moves.kv_moves import MoveScheduler
from gateway.kv.nodes.kv_nodes import KvNodes
from gateway.requests.advisories.advisories import Advisories
from gateway.requests.advisories.advisory_tally import AdvisoryTally
from kvstore.tiers.block_facts import DRAM, SSD, BlockFacts
from kvstore.transactions.cold_copies import drop_cold
from kvstore.transactions.expected_blocks import Expected, ExpectedBlocks
from kvstore.transactions.transactions import TransactionRejection, Transactions
from kvstore.transfer.flow_control import FlowPriority
from kvstore.transfer.shared_secret import NodeAccess
from planning.kv_moves.replica_count import UNREAD_S
from routing.advisories.advised_routing import STICKY_S
from routing.ledger.node_loads import NodeLoads
from routing.policy.policy_document import AdvisoryRule, RoutingPolicy
from routing.router import Router
from routing.values.decision import Dispatched
from routing.values.inference_request import InferenceRequest
from routing.values.observation import Completed
from tests.kvstore.kv_blocks import catalog, key
from tests.patience import until
from tests.routing.advisories.test_advised_routing import DEAR
from tests.routing.pools import engines

HOMES = {"e-01": "a", "e-02": "b"}
SESSIONS, BLOCKS, STEPS = 8, 4, 900
LEASE_S = 10.0


def blocks_of(session: int) -> tuple[int, ...]:
    return tuple(range(100 * session + 1, 100 * session + 1 + BLOCKS))


def facts(name: int) -> BlockFacts:
    return BlockFacts(key(name), 1000, tokens=16, tenant="acme", routing_key=name)


class Node:
    """The blocks of one machine."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Start empty, as after a restart of the machine."""
        self.held = catalog(dram_slots=12, ssd_slots=12)
        self.transactions = Transactions(self.held)

    def blocks(self) -> dict[int, bool]:
        """Return the readable blocks, each mapped to whether it is in DRAM."""
        return {item.facts.routing_key: DRAM in item.slots for item in self.held.page(-1, 1000) if item.visible}

    def store(self, names: Sequence[int], now: float, expected: Expected | None = None, *, ends: str = "whole") -> bool:
        """Store blocks; return whether all were stored. With `ends`, stop partway without a commit."""
        tx_id = f"{names} {now} {random.random()}"
        new = [facts(name) for name in names if self.held.find(key(name)) is None]
        if isinstance(self.transactions.allocate(tx_id, [], new, LEASE_S, now, expected), TransactionRejection):
            return False
        records = self.transactions.begin_write(tx_id, [item.key for item in new])
        assert records is not None
        self.transactions.end_write(records, [b"0" * 16] * len(records))
        return ends == "whole" and self.transactions.commit(tx_id, now)


class World(Mover):
    """Two nodes and a gateway that ends and restarts. Both threads use the state under `lock`."""

    def __init__(self, rule: AdvisoryRule, seed: int) -> None:
        self.rng, self.lock, self.now = random.Random(seed), threading.Lock(), 1000.0
        self.nodes = {name: Node() for name in "ab"}
        self.lost, self.moves, self.shrinks = set[int](), 0, 0
        self.policy = RoutingPolicy(advisories=rule, prefill_cost=DEAR)
        self.on_their_way: list[tuple[Advisory, float, bool]] = []
        self.requests = 0
        self.begin()

    def begin(self) -> None:
        """Start the gateway without any state."""
        metrics = GatewayMetrics()
        kv_nodes = KvNodes(NodeAccess(), metrics)
        kv_nodes.entries = {name: KvNodeEntry(name=name, address=f"{name}:1") for name in self.nodes}
        self.holdings = kv_nodes.holdings
        for name in self.nodes:
            self.holdings.join(name)
        loads = NodeLoads(self.holdings)
        loads.set_nodes(HOMES, dict.fromkeys(self.nodes, 1000))
        self.router = Router("pool", self.policy, 1)
        self.router.set_engines(engines(2), self.now)
        self.router.follow_nodes(loads)
        self.orders = MoveScheduler(kv_nodes, NodeAccess(), metrics, mover=self, clock=lambda: self.now)
        entry = SimpleNamespace(policy=self.policy, served_model="m", pool_id="pool", block_tokens=16)
        driver = SimpleNamespace(chain=self.router)
        pools: Any = {"pool": SimpleNamespace(entry=entry, driver=driver, serves=lambda model: model in ("", "m"))}
        lag: Any = SimpleNamespace(behind=False)
        tally = AdvisoryTally(metrics, "g")
        self.advisories = Advisories(pools, self.orders, tally, lag, clock=lambda: self.now)
        self.read_nodes()

    def read_nodes(self) -> None:
        """Report the contents of the nodes to the gateway."""
        with self.lock:
            for name, node in self.nodes.items():
                blocks = node.blocks()
                self.holdings.cleared(name)
                for block, in_dram in blocks.items():
                    self.holdings.stored(name, [block], dram=in_dram)
                self.holdings.complete(name)

    def all_blocks(self) -> set[int]:
        return {block for node in self.nodes.values() for block in node.blocks()}

    # -- what a node's thread does for an order

    @override
    def move(
        self, source: str, target: str, keys: Sequence[int], priority: FlowPriority, expected_s: float = 0.0
    ) -> Part:
        source, target = source[0], target[0]
        with self.lock:
            self.moves += 1
            fate, before = self.rng.random(), self.all_blocks()
            there, to = self.nodes[source].blocks(), self.nodes[target]
            asked = [item for item in keys if item in there]
            expected = Expected(self.now + expected_s, self.now + 60.0)
            if source == target:
                self._fill(to, asked, expected)
                came = True
            else:
                came = to.store(asked, self.now, expected, ends="whole" if fate < 0.8 else "partway")
            self.lost |= before - self.all_blocks()
        if fate > 0.9:
            raise ConnectionError("the answer was lost")
        return Part(tuple(asked) if came else (), 1000 * len(asked), MOVED if came else FAILED if asked else MISSING)

    @override
    def shrink(self, keeper: str, target: str, keys: Sequence[int]) -> Part:
        with self.lock:
            self.shrinks += 1
            before, names, tx_id = self.all_blocks(), [key(item) for item in keys], f"shrink {self.shrinks}"
            kept = self.nodes[keeper[0]].transactions
            if isinstance(kept.allocate(tx_id, names, [], LEASE_S, self.now), TransactionRejection):
                return Part((), 0, KEPT)
            drop_cold(self.nodes[target[0]].held, names, self.now - UNREAD_S)
            if self.rng.random() < 0.8:
                kept.commit(tx_id, self.now)
            self.lost |= before - self.all_blocks()
        return Part(tuple(keys), 1000 * len(keys), FREED)

    def _fill(self, node: Node, names: Sequence[int], expected: Expected) -> None:
        for name in names:
            record = node.held.open_fill(key(name), DRAM, expected)
            if record is not None:
                node.held.close_fill(record, DRAM, whole=self.rng.random() < 0.9)

    @override
    def close(self) -> None: ...

    # -- what happens

    def send(self) -> None:
        """Send an advisory for a session; `deliver` delivers it later."""
        rng = self.rng
        lead_s = rng.choice((None, rng.uniform(0.0, 40.0)))
        session = f"s-{rng.randrange(SESSIONS)}"
        advisory = Advisory(
            tenant_id="acme", session_id=session, expected_arrival_s=lead_s, source=f"k-{rng.randrange(200)}"
        )
        self.on_their_way.append((advisory, self.now, rng.random() < 0.2))

    def deliver(self) -> None:
        """Deliver any pending message. A message can be delivered twice or never."""
        if not self.on_their_way:
            return
        newest = min(len(self.on_their_way), self.rng.choice((1, 3, 30)))
        at = len(self.on_their_way) - 1 - self.rng.randrange(newest)
        advisory, said_s, withdrawn = self.on_their_way[at]
        dice = self.rng.random()
        if dice < 0.8:
            del self.on_their_way[at]
        if dice < 0.1:
            return
        age_s = self.now - said_s
        if withdrawn:
            self.advisories.withdraw(advisory.tenant_id, advisory.session_id, age_s)
        else:
            self.advisories.received(advisory, age_s)

    def ask(self) -> None:
        """Serve a session's request; its blocks are read from or stored at the engine's own node."""
        self.requests += 1
        number = self.rng.randrange(SESSIONS)
        keys = blocks_of(number)
        asked = InferenceRequest(
            f"r-{self.requests:08}", keys, 16 * BLOCKS, 16, self.now, 5.0, tenant_id="acme", session_id=f"s-{number}"
        )
        outcome = self.router.place(asked, self.now)
        assert isinstance(outcome, Dispatched)
        self.advisories.decided(asked, outcome.decision)
        self.router.observe(Completed(asked.request_id), self.now)
        with self.lock:
            node, before = self.nodes[HOMES[outcome.decision.engine_id]], self.all_blocks()
            records = node.held.open_read([key(item) for item in keys])
            node.held.expected.wanted(records)
            node.held.close_read(records)
            # Without advisories these would leave too, for all blocks come and go by their last use.
            plain = copy.deepcopy(node)
            plain.held.expected = ExpectedBlocks()
            held = plain.blocks().keys()
            plain.store(keys, self.now)
            node.store(keys, self.now)
            self.lost |= before - self.all_blocks() - (held - plain.blocks().keys())

    def drain(self) -> None:
        """Drain one engine, so that its sessions move to the other one, or restore both."""
        out = self.rng.randrange(3)
        self.router.set_engines([engines(2, accepts=number != out)[number] for number in range(2)], self.now)

    def write_behind(self) -> None:
        """Write blocks from a node's DRAM to its SSD."""
        with self.lock:
            node = self.nodes[self.rng.choice("ab")]
            in_dram = [name for name, in_dram in node.blocks().items() if in_dram]
            for name in self.rng.sample(in_dram, min(6, len(in_dram))):
                before = self.all_blocks()
                record = node.held.open_fill(key(name), SSD)
                if record is not None:
                    node.held.close_fill(record, SSD, whole=True)
                    self.lost |= before - self.all_blocks() if record.brought else set()

    async def step(self) -> None:
        dice = self.rng.random()
        if dice < 0.3:
            self.send()
        elif dice < 0.55:
            self.deliver()
        elif dice < 0.75:
            self.ask()
        elif dice < 0.85:
            self.write_behind()
        elif dice < 0.91:
            self.drain()
        elif dice < 0.95:
            self.advisories.sweep()
            self.orders.sweep()
        elif dice < 0.97:
            with self.lock:
                self.nodes[self.rng.choice("ab")].begin()
        elif dice < 0.98:
            await self.orders.stop()
            self.begin()
        else:
            await until(lambda: len(self.orders) == 0)
        self.now += self.rng.choice((0.0, 0.1, 0.5, 1.0, 10.0))
        self.read_nodes()
        await asyncio.sleep(0)

    def check(self) -> None:
        self.router.check()
        self.router.advised.sessions.check()
        self.advisories.sessions.check()
        with self.lock:
            for node in self.nodes.values():
                node.transactions.expire(self.now)
                node.transactions.check()
                node.held.check()
            assert not self.lost


@pytest.mark.parametrize("rule", ["gated", "symphony"])
@pytest.mark.parametrize("seed", range(6))
async def test_no_order_of_events_loses_an_only_copy_or_leaks_a_reservation(rule: AdvisoryRule, seed: int) -> None:
    world = World(rule, seed)
    for _ in range(STEPS):
        await world.step()
        world.check()
    assert world.moves
    await until(lambda: len(world.orders) == 0)
    world.now += 1000.0
    world.advisories.sweep()
    world.check()
    assert len(world.advisories) == len(world.router.reservations) == 0
    # Under symphony, sessions without an advisory keep their engine for an hour.
    world.router.advised.sessions.expire(world.now + STICKY_S)
    assert len(world.router.advised.sessions) == 0
    assert not world.orders._of_request
    assert all(len(node.transactions) == 0 for node in world.nodes.values())
    await world.orders.stop()
