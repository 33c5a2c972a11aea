"""Engines, node managers and a gateway together: one engine loads blocks that another one computed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bench.live.loopback_ports import free_ports
from gateway.base.settings import GatewaySettings
from gateway.bus.bus import InProcessBus
from gateway.contracts.snapshot import KvNodeEntry, Snapshot, encode_snapshot
from gateway.contracts.stored_decision import StoredDecision
from gateway.gateway import SNAPSHOT_TOPIC
from gateway.reports.decision_recorder import current_decision
from kvstore.node.node_manager import NodeManager
from kvstore.transfer.shared_secret import NodeAccess
from routing.advisories.call_graph import NO_AGENTS
from routing.policy.policy_document import PrefillCostDocument, RoutingPolicy, Stage
from routing.values import reasons
from tests.gateway.kv.nodes.loading_engine import BLOCK_BYTES, LoadingEngine
from tests.gateway.served_gateway import CHAT, KEY, MODEL, OTHER_KEY, ServedGateway, served, snapshot
from tests.kvstore.kv_blocks import KEYRING, address, node
from tests.patience import until

PROMPT = "the quick brown fox jumps over the lazy dog; " * 8
BLOCKS = (len(PROMPT) - 1) // 16
DEAR = PrefillCostDocument(base_s=0.0, per_token_s=0.01, per_token_squared_s=0.0)
"""Computing takes so long that loading pays."""


def body(**fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": PROMPT}], "max_tokens": 2, **fields}


@contextmanager
def a_node(name: str) -> Iterator[tuple[NodeManager, KvNodeEntry]]:
    events_port, replay_port = free_ports(2)
    sizes = {"dram_slots": 256, "ssd_slots": 0, "slot_bytes": 4096}
    with node(None, slots=sizes, node_id=name, events_port=events_port, replay_port=replay_port) as manager:
        yield manager, entry_of(manager, name, events_port, replay_port)


def entry_of(manager: NodeManager, name: str, events_port: int, replay_port: int) -> KvNodeEntry:
    return KvNodeEntry(
        name=name,
        address=address(manager),
        events_endpoint=f"tcp://127.0.0.1:{events_port}",
        replay_endpoint=f"tcp://127.0.0.1:{replay_port}",
        slot_bytes=4096,
    )


class Fleet:
    """Two engines, each with its own node manager, behind a gateway."""

    def __init__(
        self, gateway: ServedGateway, engines: Mapping[str, LoadingEngine], first: Snapshot, bus: InProcessBus
    ):
        self.gateway, self.engines, self.first, self.bus = gateway, engines, first, bus

    def publish(self, **fields: Any) -> None:
        """Publish the snapshot with these fields changed."""
        self.first = msgspec.structs.replace(self.first, version=self.first.version + 1, **fields)
        self.bus.publish(SNAPSHOT_TOPIC, encode_snapshot(self.first))

    def keep_out(self, *engine_ids: str) -> None:
        """Drain only these engines."""
        engines = [
            msgspec.structs.replace(engine, desired_state="draining" if engine.engine_id in engine_ids else "ready")
            for engine in self.first.engines
        ]
        self.publish(engines=tuple(engines))

    async def ask(self, **fields: Any) -> tuple[dict[str, Any], StoredDecision]:
        """Return the response and the record of one request."""
        status, answer, headers = await self.gateway.post(CHAT, body(**fields))
        assert status == 200, answer
        record = self.gateway.app.recent.get(headers["x-headway-decision"])
        assert record is not None
        return answer, current_decision(record)

    def holding(self, name: str) -> bool:
        return self.gateway.gateway.kv_nodes.holdings.is_readable(name)

    def blocks(self, name: str) -> float:
        return self.gateway.gateway.metrics.kv_node_blocks._values.get((name,), -1.0)

    def loads(self, outcome: str) -> float:
        return self.gateway.gateway.metrics.kv_loads.value("pool", outcome)


@asynccontextmanager
async def serving(
    state_dir: Path, nodes: Mapping[str, KvNodeEntry], placement: str = "mooncake", **pool: Any
) -> AsyncIterator[Fleet]:
    """Serve two engines, engine-0 with node a and engine-1 with node b."""
    homes, roles = ("a", "b"), pool.pop("roles", ())
    engines = {f"engine-{number}": LoadingEngine(nodes[name].address) for number, name in enumerate(homes)}
    first, second = engines.values()
    bus = InProcessBus()
    graph = pool.pop("call_graph", NO_AGENTS)
    settings = GatewaySettings(probe_interval_s=0.1, kv_access=NodeAccess(KEYRING))
    policy = RoutingPolicy(placement=Stage(name=placement), prefill_cost=DEAR)
    async with first, second, served([], state_dir, bus=bus, gateway_settings=settings) as gateway:
        plain = snapshot([first.url, second.url], roles=roles, **{"policy": policy, **pool})
        with_homes = tuple(
            msgspec.structs.replace(item, kv_node=home) for item, home in zip(plain.engines, homes, strict=True)
        )
        fleet = Fleet(gateway, engines, msgspec.structs.replace(plain, engines=with_homes), bus)
        fleet.publish(kv_nodes=tuple(nodes.values()), call_graph=graph)
        await until(lambda: "pool" in gateway.gateway.pools)
        await until(lambda: len(gateway.pool.accepting) == 2)
        try:
            yield fleet
        finally:
            for engine in engines.values():
                engine.close()


@pytest.mark.parametrize("placement", ["mooncake", "least_cost"])
async def test_blocks_that_one_engine_computed_are_loaded_by_another(tmp_path: Path, placement: str) -> None:
    with a_node("a") as (_, one), a_node("b") as (_, other):
        async with serving(tmp_path, {"a": one, "b": other}, placement) as fleet:
            await until(lambda: fleet.holding("a") and fleet.holding("b"))
            fleet.keep_out("engine-1")
            _, record = await fleet.ask()
            assert (record.load, fleet.engines["engine-0"].orders[0].load_blocks) == (None, 0)
            assert len(fleet.engines["engine-0"].orders[0].routing_keys()) == BLOCKS
            await until(lambda: fleet.blocks("a") == BLOCKS)
            fleet.keep_out("engine-0")
            await until(lambda: fleet.gateway.pool.accepting == {"engine-1"})
            answer, record = await fleet.ask()
            order = fleet.engines["engine-1"].orders[0]
            assert (order.load_blocks, order.holders) == (BLOCKS, [one.address])
            fetch, load = record.decision.fetch, record.load
            assert fetch is not None and load is not None
            assert (record.decision.reason, fetch.node, fetch.blocks) == (reasons.LOAD, "a", BLOCKS)
            assert (load.node, load.ordered_blocks, load.blocks, load.bytes) == (
                "a",
                BLOCKS,
                BLOCKS,
                BLOCKS * BLOCK_BYTES,
            )
            assert (load.reason, load.saved_tokens, load.seconds > 0) == ("", 16 * BLOCKS, True)
            assert answer["kv_transfer_params"] is None
            assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 16 * BLOCKS
            assert fleet.loads("whole") == 1
            metrics = await fleet.gateway.metrics()
            assert f'headway_kv_loaded_bytes_total{{pool="pool"}} {float(BLOCKS * BLOCK_BYTES)}' in metrics
            assert f'headway_kv_saved_tokens_total{{pool="pool"}} {float(16 * BLOCKS)}' in metrics
            ((home, holder, rate),) = fleet.gateway.pool.loads.learned.links()
            assert (home, holder, rate.loads) == ("b", "a", 1)
            assert fleet.gateway.pool.loads.learned.block_bytes == BLOCK_BYTES


async def test_the_record_states_the_available_blocks_and_no_hit_is_a_mismatch(tmp_path: Path) -> None:
    """A load does not contradict the index, which covers only the engine's own memory."""
    with a_node("a") as (_, one), a_node("b") as (_, other):
        async with serving(tmp_path, {"a": one, "b": other}) as fleet:
            await until(lambda: fleet.holding("a") and fleet.holding("b"))
            await fleet.ask()
            await until(lambda: fleet.blocks("a") + fleet.blocks("b") >= BLOCKS)
            _, record = await fleet.ask()
            assert record.load is not None
            assert (record.cached_tokens, record.believed_tokens, record.mismatch) == (16 * BLOCKS, 0, "")


async def test_a_streaming_client_does_not_see_the_load(tmp_path: Path) -> None:
    with a_node("a") as (_, one), a_node("b") as (_, other):
        async with serving(tmp_path, {"a": one, "b": other}) as fleet:
            await until(lambda: fleet.holding("a") and fleet.holding("b"))
            await fleet.ask()
            await until(lambda: fleet.blocks("a") + fleet.blocks("b") >= BLOCKS)
            headers = {"authorization": f"Bearer {KEY}"}
            sent = body(stream=True, stream_options={"include_usage": True})
            async with fleet.gateway.client.post(fleet.gateway.url + CHAT, json=sent, headers=headers) as response:
                text = await response.text()
            assert "headway" not in text
            events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
            assert events[-1]["usage"]["prompt_tokens_details"]["cached_tokens"] == 16 * BLOCKS
            await until(lambda: fleet.loads("whole") == 1)


async def test_blocks_of_a_dead_node_are_not_expected(tmp_path: Path) -> None:
    with ExitStack() as stack:
        manager, one = stack.enter_context(a_node("a"))
        _, other = stack.enter_context(a_node("b"))
        async with serving(tmp_path, {"a": one, "b": other}) as fleet:
            await until(lambda: fleet.holding("a") and fleet.holding("b"))
            fleet.engines["engine-1"].node = ""
            fleet.keep_out("engine-1")
            await fleet.ask()
            await until(lambda: fleet.blocks("a") == BLOCKS)
            _, before = await fleet.ask()
            assert before.load is not None
            assert manager.stop()
            await until(lambda: not fleet.holding("a"))
            assert 'headway_kv_node_followed{node="a"} 0.0' in await fleet.gateway.metrics()
            _, after = await fleet.ask()
            assert (after.outcome, after.load, after.decision.fetch) == ("completed", None, None)


async def test_a_failed_load_costs_a_prefill_and_its_node_is_avoided(tmp_path: Path) -> None:
    with a_node("a") as (_, one), a_node("b") as (_, other):
        async with serving(tmp_path, {"a": one, "b": other}) as fleet:
            await until(lambda: fleet.holding("a") and fleet.holding("b"))
            holdings = fleet.gateway.gateway.kv_nodes.holdings
            fleet.keep_out("engine-1")
            fleet.engines["engine-0"].node = ""
            await fleet.ask()
            # The gateway believes what the node does not have.
            holdings.stored("a", fleet.engines["engine-0"].orders[0].routing_keys())
            _, record = await fleet.ask()
            assert record.load is not None
            assert (record.load.blocks, record.load.reason, record.load.saved_tokens) == (0, "failed", 0)
            assert (record.outcome, fleet.loads("failed")) == ("completed", 1)
            _, record = await fleet.ask()
            assert record.decision.fetch is None


async def test_another_tenants_keys_differ_if_caches_are_separated(tmp_path: Path) -> None:
    with a_node("a") as (_, one), a_node("b") as (_, other):
        async with serving(tmp_path, {"a": one, "b": other}, isolated=True) as fleet:
            await until(lambda: fleet.holding("a") and fleet.holding("b"))
            await fleet.ask()
            await until(lambda: fleet.blocks("a") + fleet.blocks("b") >= BLOCKS)
            status, _, headers = await fleet.gateway.post(CHAT, body(), key=OTHER_KEY)
            assert status == 200
            record = fleet.gateway.app.recent.get(headers["x-headway-decision"])
            assert record is not None
            assert record.decision.fetch is None
            tenants = {order.tenant for engine in fleet.engines.values() for order in engine.orders}
            assert tenants == {"tenant-a", "tenant-b"}


@pytest.mark.parametrize("hint", ["ephemeral", "context_cache", "default"])
async def test_engines_get_the_callers_cache_hint(tmp_path: Path, hint: str) -> None:
    with a_node("a") as (_, one), a_node("b") as (_, other):
        async with serving(tmp_path, {"a": one, "b": other}) as fleet:
            for engine in fleet.engines.values():
                engine.node = ""
            await fleet.ask(cache_hint=hint)
            headers = {"x-headway-cache-hint": hint}
            assert (await fleet.gateway.post(CHAT, body(), headers=headers))[0] == 200
            orders = [order for engine in fleet.engines.values() for order in engine.orders]
            pinned_s = 3600.0 if hint == "context_cache" else 0.0
            assert [(order.hint, order.pin_s) for order in orders] == [(hint, pinned_s)] * 2
            assert not any("cache_hint" in sent for engine in fleet.engines.values() for sent in engine.bodies)


async def test_a_context_cache_covers_a_segment_for_a_time(tmp_path: Path) -> None:
    with a_node("a") as (_, one), a_node("b") as (_, other):
        async with serving(tmp_path, {"a": one, "b": other}) as fleet:
            for engine in fleet.engines.values():
                engine.node = ""
            await fleet.ask(cache_hint={"hint": "context_cache", "start": 20, "end": 100, "ttl_s": 90})
            await fleet.ask(cache_hint={"hint": "ephemeral", "start": 40})
            orders = [order for engine in fleet.engines.values() for order in engine.orders]
            segments = {(order.hint, order.hint_from, order.hint_to, order.pin_s) for order in orders}
            # Blocks of 16 tokens that hold a token of the segment.
            assert segments == {("context_cache", 1, 7, 90.0), ("ephemeral", 2, 0, 0.0)}


async def test_an_invalid_hint_is_rejected(tmp_path: Path) -> None:
    with a_node("a") as (_, one), a_node("b") as (_, other):
        async with serving(tmp_path, {"a": one, "b": other}) as fleet:
            for said in ("forever", 3, ["ephemeral"]):
                status, answer, _ = await fleet.gateway.post(CHAT, body(cache_hint=said))
                assert (status, answer["error"]["param"]) == (400, "cache_hint")
            status, answer, _ = await fleet.gateway.post(CHAT, body(), headers={"x-headway-cache-hint": "no"})
            assert (status, answer["error"]["param"]) == (400, "x-headway-cache-hint")


async def test_a_clients_own_load_order_reaches_no_engine(tmp_path: Path) -> None:
    with a_node("a") as (_, one), a_node("b") as (_, other):
        async with serving(tmp_path, {"a": one, "b": other}) as fleet:
            own = {"headway": {"load_blocks": 3, "holders": ["198.51.100.7:1"]}}
            await fleet.ask(kv_transfer_params=own)
            orders = [order for engine in fleet.engines.values() for order in engine.orders]
            assert [(order.load_blocks, order.holders) for order in orders] == [(0, [])]


@pytest.mark.parametrize("cached", [True, False])
async def test_a_load_that_no_engine_reports_is_inferred_from_its_cached_tokens(tmp_path: Path, cached: bool) -> None:
    with a_node("a") as (_, one), a_node("b") as (_, other):
        async with serving(tmp_path, {"a": one, "b": other}) as fleet:
            await until(lambda: fleet.holding("a") and fleet.holding("b"))
            for engine in fleet.engines.values():
                engine.silent, engine.reports_cached = True, cached
            await fleet.ask()
            await until(lambda: fleet.blocks("a") + fleet.blocks("b") >= BLOCKS)
            _, record = await fleet.ask()
            load = record.load
            assert load is not None
            if cached:
                assert (load.inferred, load.blocks, load.saved_tokens, load.reason) == (True, BLOCKS, 16 * BLOCKS, "")
                assert (fleet.loads("whole"), fleet.loads("untold")) == (1, 0)
            else:
                assert (load.inferred, load.blocks, load.reason) == (False, 0, "untold")
                assert (fleet.loads("whole"), fleet.loads("untold")) == (0, 1)
            # Tokens reported as cached may have been loaded: whether the index was wrong is unknown.
            assert record.mismatch == ""


@pytest.mark.parametrize("streams", [False, True])
async def test_a_prompt_is_loaded_by_the_prefill_engine_and_handed_over(tmp_path: Path, streams: bool) -> None:
    with a_node("a") as (_, one), a_node("b") as (_, other):
        async with serving(tmp_path, {"a": one, "b": other}, roles=["prefill", "decode"]) as fleet:
            await until(lambda: fleet.holding("a") and fleet.holding("b"))
            first, second = fleet.engines.values()
            # The node of the prefill engine has nothing of it but what it had computed before.
            second.node = ""
            await fleet.ask()
            await until(lambda: fleet.blocks("a") == BLOCKS)
            headers = {"authorization": f"Bearer {KEY}"}
            sent = body(stream=streams)
            async with fleet.gateway.client.post(fleet.gateway.url + CHAT, json=sent, headers=headers) as response:
                assert response.status == 200
                assert "headway" not in await response.text()
                decision_id = response.headers["x-headway-decision"]
            assert [order.load_blocks for order in first.orders] == [0, BLOCKS]
            assert [order.load_blocks for order in second.orders] == [0, 0]
            assert all(len(order.routing_keys()) == BLOCKS for order in second.orders)
            legs = [item["kv_transfer_params"] for item in (first.bodies[1], second.bodies[1])]
            assert (legs[0]["do_remote_decode"], legs[1]["remote_url"]) == (True, first.url)
            record = fleet.gateway.app.recent.get(decision_id)
            assert record is not None
            load = current_decision(record).load
            assert load is not None
            assert (load.node, load.blocks, load.saved_tokens) == ("a", BLOCKS, 16 * BLOCKS)
            assert fleet.loads("whole") == 1
            learned = fleet.gateway.pool.loads.learned
            assert [(home, node, rate.loads) for home, node, rate in learned.links()] == [("a", "a", 1)]


async def test_requests_with_several_prompts_load_nothing(tmp_path: Path) -> None:
    with a_node("a") as (_, one), a_node("b") as (_, other):
        async with serving(tmp_path, {"a": one, "b": other}) as fleet:
            await until(lambda: fleet.holding("a") and fleet.holding("b"))
            for prompt in (PROMPT, [PROMPT, "another"]):
                status, _, _ = await fleet.gateway.post("/v1/completions", {"model": MODEL, "prompt": prompt})
                assert status == 200
                await until(lambda: fleet.blocks("a") + fleet.blocks("b") >= BLOCKS)
            orders = [order for engine in fleet.engines.values() for order in engine.orders]
            assert sorted((len(order.routing_keys()), order.load_blocks) for order in orders) == [(0, 0), (BLOCKS, 0)]
