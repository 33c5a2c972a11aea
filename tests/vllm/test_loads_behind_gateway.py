"""Two real engines with our KV connector and a node each: a gateway has one load what the other one computed.

Elsewhere in this folder tests give the orders; here the gateway names the blocks, hears of them from the nodes, and
decides what is loaded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bench.live.live_fleet import free_ports
from gateway.base.settings import GatewaySettings
from gateway.bus.bus import InProcessBus
from gateway.contracts.snapshot import KvNodeEntry, Snapshot, encode_snapshot
from gateway.contracts.stored_decision import StoredDecision
from gateway.gateway import SNAPSHOT_TOPIC
from gateway.reports.decision_recorder import as_it_stands
from kvstore.transfer.shared_secret import NodeAccess
from routing.policy.policy_document import PrefillCostDocument, RoutingPolicy, Stage
from routing.values import reasons
from tests.gateway.served_gateway import ServedGateway, served, snapshot
from tests.vllm.attached import words
from tests.vllm.real_engine import BLOCK_TOKENS, MODEL, RealEngine
from tests.vllm.stored_blocks import SECRET, StoreProcess
from tests.vllm.storing_engine import storing_engine

pytestmark = pytest.mark.vllm
CHAT = "/v1/chat/completions"
PATIENCE_S = 300.0
DEAR = PrefillCostDocument(base_s=0.0, per_token_s=0.01, per_token_squared_s=0.0)
"""The gateway takes computing for so slow that loading pays."""


class Node:
    """A node manager that tells of its blocks, and the engine that keeps its own there."""

    def __init__(self, name: str, directory: Path, log: Path) -> None:
        self.name = name
        events, replay = free_ports(2)
        self.store = StoreProcess(directory, "--name", name, "--events-port", str(events), "--replay-port", str(replay))
        self.entry = KvNodeEntry(
            name=name,
            address=self.store.address,
            events_endpoint=f"tcp://127.0.0.1:{events}",
            replay_endpoint=f"tcp://127.0.0.1:{replay}",
            slot_bytes=64 << 10,
        )
        self.engine: RealEngine = storing_engine(self.store, log)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory, logs: Path) -> Iterator[list[Node]]:
    """Two nodes with an engine each."""
    made = [Node(name, tmp_path_factory.mktemp(name), logs / f"behind-{name}.log") for name in ("a", "b")]
    with ExitStack() as stack:
        for each in made:
            stack.callback(each.store.close)
            each.store.start()
        for each in made:
            stack.callback(each.engine.kill)
            each.engine.start()
        for each in made:
            each.engine.wait()
        yield made


class Fleet:
    """A gateway over both. Mutable: the snapshot that it serves from."""

    def __init__(self, gateway: ServedGateway, first: Snapshot, bus: InProcessBus) -> None:
        self.gateway, self._snapshot, self._bus = gateway, first, bus

    async def only(self, engine_id: str) -> None:
        """Have this engine serve alone."""
        engines = tuple(
            msgspec.structs.replace(each, desired_state="ready" if each.engine_id == engine_id else "draining")
            for each in self._snapshot.engines
        )
        version = self._snapshot.version + 1
        self._snapshot = msgspec.structs.replace(self._snapshot, version=version, engines=engines)
        self._bus.publish(SNAPSHOT_TOPIC, encode_snapshot(self._snapshot))
        await until(lambda: self.gateway.pool.accepting == {engine_id})

    async def ask(self, text: str) -> tuple[dict[str, Any], StoredDecision]:
        """Return the answer and the record of one chat."""
        body = {"model": MODEL, "messages": [{"role": "user", "content": text}], "max_tokens": 24, "temperature": 0}
        status, answer, headers = await self.gateway.post(CHAT, {**body, "ignore_eos": True})
        assert status == 200, answer
        record = self.gateway.app.recent.get(headers["x-switchyard-decision"])
        assert record is not None
        return answer, as_it_stands(record)

    def node_blocks(self, name: str) -> float:
        """Return how many blocks the gateway knows of at a node."""
        return float(self.gateway.gateway.metrics.kv_node_blocks._values.get((name,), -1.0))


@asynccontextmanager
async def serving(nodes: list[Node], state_dir: Path) -> AsyncIterator[Fleet]:
    bus = InProcessBus()
    settings = GatewaySettings(probe_interval_s=0.1, kv_access=NodeAccess(SECRET.encode()))
    policy = RoutingPolicy(placement=Stage(name="mooncake"), prefill_cost=DEAR)
    plain = snapshot([each.engine.url for each in nodes], policy=policy, block_tokens=BLOCK_TOKENS)
    engines = tuple(
        msgspec.structs.replace(
            entry, kv_node=node.name, kv_events_endpoint=node.engine.events, kv_replay_endpoint=node.engine.replay
        )
        for entry, node in zip(plain.engines, nodes, strict=True)
    )
    first = msgspec.structs.replace(plain, engines=engines, kv_nodes=tuple(each.entry for each in nodes))
    async with served([], state_dir, bus=bus, gateway_settings=settings) as gateway:
        bus.publish(SNAPSHOT_TOPIC, encode_snapshot(first))
        await until(lambda: "pool" in gateway.gateway.pools and len(gateway.pool.accepting) == len(nodes))
        await until(lambda: all(each.trust.grade == "exact" for each in gateway.pool.engines.values()))
        await until(lambda: all(gateway.gateway.kv_nodes.holdings.is_readable(each.name) for each in nodes))
        yield Fleet(gateway, first, bus)


async def until(there: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not there():
            await asyncio.sleep(0.05)


async def test_what_one_engine_computed_another_one_loads_by_the_gateways_order(
    nodes: list[Node], tmp_path: Path
) -> None:
    text = words(300, "behind the gateway")
    async with serving(nodes, tmp_path) as fleet:
        before = fleet.node_blocks("a")
        await fleet.only("engine-0")
        computed, record = await fleet.ask(text)
        blocks = (computed["usage"]["prompt_tokens"] - 1) // BLOCK_TOKENS
        assert blocks > 5
        assert record.load is None
        await until(lambda: fleet.node_blocks("a") >= max(before, 0.0) + blocks)

        await fleet.only("engine-1")
        loaded, record = await fleet.ask(text)
        fetch, load = record.decision.fetch, record.load
        assert fetch is not None and load is not None
        assert (record.decision.reason, fetch.node, fetch.blocks) == (reasons.LOAD, "a", blocks)
        assert (load.node, load.blocks, load.reason) == ("a", blocks, "")
        assert load.bytes > 0
        assert loaded["usage"]["prompt_tokens_details"]["cached_tokens"] == blocks * BLOCK_TOKENS
        assert loaded["choices"][0]["message"]["content"] == computed["choices"][0]["message"]["content"]
        assert not loaded.get("kv_transfer_params"), "what engine and gateway say to each other"

        again, record = await fleet.ask(text)
        assert record.load is None, "it is in the engine's own cache"
        assert record.decision.hit_tokens == blocks * BLOCK_TOKENS
        assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == record.decision.hit_tokens


async def test_a_node_that_is_gone_costs_the_load_and_not_the_answer(nodes: list[Node], tmp_path: Path) -> None:
    text = words(300, "a node that goes")
    async with serving(nodes, tmp_path) as fleet:
        before = fleet.node_blocks("a")
        await fleet.only("engine-0")
        computed, _ = await fleet.ask(text)
        await until(lambda: fleet.node_blocks("a") > max(before, 0.0))
        await fleet.only("engine-1")
        await asyncio.to_thread(nodes[0].store.close)
        answer, record = await fleet.ask(text)
        assert answer["choices"][0]["message"]["content"] == computed["choices"][0]["message"]["content"]
        assert record.load is None or record.load.blocks == 0
