"""Engines' CPU tiers and loaded adapters over HTTP: indexed, preferred, predicted exactly, shown and learned.

What the router learns from the result of a load that an engine reports.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import pytest
from msgspec.structs import replace

from bench.live.loopback_ports import free_ports
from gateway.bus.bus import InProcessBus
from gateway.contracts.fleet_sample import decode_sample
from gateway.contracts.snapshot import EngineEntry, encode_snapshot
from gateway.gateway import SNAPSHOT_TOPIC
from gateway.kv.moves.kv_moves import MoveScheduler, PoolMoves
from gateway.pools.pool.ended_hits import hit_sample
from gateway.pools.pool.kv_load import load_result
from gateway.pools.pool.recent_decisions import DecisionRecord
from kvstore.connector.engine_params import KvOutcome
from kvstore.index.lower_tiers import CPU
from routing.ledger.node_loads import NodeLoads
from routing.values.inference_request import InferenceRequest
from routing.values.load_options import Fetch
from simulator.engine_models.engine_profile import EngineProfile
from simulator.engine_server.settings import EngineSettings
from tests.gateway.live_gateway import engine_entry, live_gateway
from tests.gateway.live_gateway import snapshot as live_snapshot
from tests.gateway.served_gateway import CHAT, KEY, MODEL, ServedGateway, served, snapshot
from tests.patience import until
from tests.routing.ledger.test_node_loads import KEYS, loads, ways
from tests.simulated_engine import serving

PROFILE = EngineProfile(block_tokens=16, num_blocks=48, cpu_blocks=512, recompute_last_block=True)


@asynccontextmanager
async def simulated(number: int) -> AsyncIterator[EngineEntry]:
    """Run an engine with little memory, a CPU tier and an adapter that publishes events as vLLM does."""
    port, events, replay = free_ports(3)
    settings = EngineSettings(
        port=port, served_model=MODEL, lora=("sql",), lora_load_s=25.0, seed=b"own", time_scale=50.0, profile=PROFILE,
        kv_events_port=events, kv_replay_port=replay,
    )  # fmt: skip
    async with serving(settings):
        yield EngineEntry(
            engine_id=f"engine-{number}", name=f"e{number}", pool_id="pool", url=f"http://127.0.0.1:{port}",
            kv_events_endpoint=f"tcp://127.0.0.1:{events}", kv_replay_endpoint=f"tcp://127.0.0.1:{replay}",
        )  # fmt: skip


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[ServedGateway]:
    async with AsyncExitStack() as stack:
        engines = tuple([await stack.enter_async_context(simulated(number)) for number in range(3)])
        bus = InProcessBus()
        bus.publish(SNAPSHOT_TOPIC, encode_snapshot(replace(snapshot([]), engines=engines)))
        running = await stack.enter_async_context(served([], tmp_path, bus=bus))
        live = running.pool.engines.values()
        await until(lambda: all(item.trust.grade == "exact" for item in live) and running.pool.names.engines("sql"))
        yield running


def chat(text: str, model: str = MODEL) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text * 30}], "max_tokens": 1}


async def asked(gateway: ServedGateway, text: str, model: str = MODEL) -> tuple[dict[str, Any], int]:
    """Return the decision on a prompt, and the cached tokens that its engine reports."""
    # Only a stream shows when its prefill is over.
    body = {**chat(text, model), "stream": True, "stream_options": {"include_usage": True}}
    headers = {"authorization": f"Bearer {KEY}"}
    async with gateway.client.post(gateway.url + CHAT, headers=headers, json=body) as answer:
        assert answer.status == 200
        lines = (await answer.read()).decode().split("\n\n")
    usage = next(json.loads(line.removeprefix("data: "))["usage"] for line in reversed(lines) if '"usage":{' in line)
    _, explained = await gateway.get(f"/api/v1/explain/{answer.headers['x-headway-decision']}")
    return explained["decision"], usage["prompt_tokens_details"]["cached_tokens"]


async def pushed_out(gateway: ServedGateway, engine_id: str, number: int) -> None:
    """Send prompts to the engine directly, and return when they have filled its memory."""
    live = gateway.pool.engines[engine_id]
    async with aiohttp.ClientSession() as http:
        for item in range(3):
            body = chat(f"Filler {number} {item}, which no client asks again. ")
            async with http.post(live.entry.url + CHAT, json=body) as answer:
                assert answer.status == 200


async def test_a_prefix_in_cpu_memory_attracts_requests_and_is_predicted_exactly(
    gateway: ServedGateway,
) -> None:
    await warmed(gateway)
    text = "A long prompt whose blocks move to CPU memory. "
    first, _ = await asked(gateway, text)
    holder, router = first["engine_id"], gateway.pool.router
    tiers = gateway.pool.engines[holder].intake.ledger.tiers
    await until(lambda: tiers.counts.get(CPU))
    loads = 0
    for number in count():
        assert number < 20, "the prompt's blocks stay in the engine's memory"
        await pushed_out(gateway, holder, number)
        keys = set(tiers.keys(CPU))
        target = router.fleet.known_target(holder)
        await until(
            lambda keys=keys, target=target: any(not router.index.targets_of(key, 0) >> target & 1 for key in keys)
        )
        decision, cached = await asked(gateway, text)
        chosen = decision["candidates"][0]
        if chosen["loading"] is None:
            # The events about its own blocks are not read yet.
            continue
        loads += 1
        assert decision["engine_id"] == holder
        assert decision["hit_tokens"] == cached > 0
        assert 0 < chosen["loading"]["tier_tokens"][CPU] <= cached
        assert 0 < chosen["loading"]["seconds"] < decision["compute_s"]
        record = gateway.gateway.recent.get(decision["decision_id"])
        assert record is not None
        sample = hit_sample(record)
        assert sample is not None
        assert sample.reported_tokens == sample.believed_tokens == cached - chosen["loading"]["tier_tokens"][CPU]
        router.check()
        if loads == 3:
            break
    await until(lambda: gateway.pool.costs.samples["loaded"] == 3)
    sample = decode_sample(latest_sample(gateway))
    shown = next(engine for engine in sample.engines if engine.engine_id == holder)
    assert [tier.tier for tier in shown.tiers] == [CPU]
    assert shown.tiers[0].blocks == len(tiers)
    assert shown.tiers[0].token_s is not None
    text_of_metrics = await gateway.metrics()
    assert f'headway_index_tier_blocks{{engine="{holder}",tier="cpu"}}' in text_of_metrics
    assert f'headway_engine_load_seconds{{engine="{holder}",what="cpu"}}' in text_of_metrics
    assert gateway.pool.engines[holder].trust.grade == "exact"


def latest_sample(gateway: ServedGateway) -> bytes:
    gateway.gateway._sampler.publish()
    value = gateway.gateway._bus.latest("fleet")
    assert value is not None
    return value


async def warmed(gateway: ServedGateway) -> None:
    """Return when enough prefills have shown the cost of computing."""
    for number in range(10):
        await asked(gateway, f"Warming up, prompt {number}. ")
    await until(lambda: gateway.pool.costs.samples["taken"] >= 10)


async def test_new_prompts_of_an_adapter_go_to_an_engine_that_has_loaded_it(gateway: ServedGateway) -> None:
    await warmed(gateway)
    first, _ = await asked(gateway, "First prompt of the adapter. ", "sql")
    assert first["candidates"][0]["loading"]["adapter"] == "sql"
    costs = gateway.pool.router.fleet.loading_costs
    for number in range(3):
        again, _ = await asked(gateway, f"Prompt {number}, which is new. ", "sql")
        assert again["engine_id"] == first["engine_id"]
        assert again["candidates"][0].get("loading") is None
        await until(lambda: costs.learned_adapter_s(first["engine_id"]) is not None)


async def test_adapters_that_an_engine_reports_count_as_loaded(tmp_path: Path) -> None:
    entries = [engine_entry(f"e{number}", "http://127.0.0.1:9") for number in range(2)]
    async with live_gateway(tmp_path, live_snapshot(entries)) as running:
        await until(lambda: "pool" in running.gateway.pools)
        running.report("e1", adapters=("sql", "law"), max_adapters=2)
        router = running.pool.router
        await until(lambda: router.view.own is not None)
        adapters = router.fleet.own_loads().adapters
        assert adapters.targets("sql") == 1 << router.fleet.known_target("e1")
        running.report("e1", adapters=("law", "poems"), max_adapters=2)
        await until(lambda: adapters.targets("poems"))
        assert not adapters.targets("sql")


def ended(learned: NodeLoads, outcome: KvOutcome) -> None:
    """Report the result of a load of ten blocks from node b."""
    metrics: Any = SimpleNamespace(
        **{
            name: SimpleNamespace(inc=lambda *_, **__: None)
            for name in ("kv_loads", "kv_loaded_bytes", "kv_saved_tokens")
        }
    )
    nodes = SimpleNamespace(name_at=lambda _address: "")
    decision = SimpleNamespace(
        decision_id="r1", pool_id="p", engine_id="e-01", fetch=Fetch("", 10, 0.1, "b"), candidates=(), prompt_tokens=160
    )
    pool = SimpleNamespace(loads=SimpleNamespace(learned=learned, metrics=metrics, nodes=nodes))
    pool.entry, orders = SimpleNamespace(block_tokens=16), SimpleNamespace(loaded=lambda *_, plans: None)
    record = SimpleNamespace(
        load_ordered=10, pool=pool, load=outcome, load_inferred=False, decision=decision, load_node="b"
    )
    result = load_result(cast("DecisionRecord", record), None, 0.0)
    assert result is not None
    moves = PoolMoves(cast("MoveScheduler", orders), "p", learned, lambda: True)
    moves.loaded(
        cast("InferenceRequest", SimpleNamespace(request_id="r1", keys=KEYS, block_tokens=16)), "e-01", result, 0.0
    )


def test_a_late_load_raises_the_links_cost_and_its_node_stays_usable() -> None:
    learned = loads(b=10)
    ended(learned, KvOutcome(seconds=5.0, reason="late"))
    assert ways(learned, "e-01") == [(10, "b")]
    assert learned.seconds("a", "b", 10) > 2 * loads().seconds("a", "b", 10)


def test_a_failed_load_has_its_node_avoided() -> None:
    learned = loads(b=10)
    ended(learned, KvOutcome(reason="failed"))
    assert ways(learned, "e-01") == []


def test_a_load_behind_others_teaches_the_link_without_their_time() -> None:
    learned = loads(b=10)
    for _ in range(100):
        learned.ordered("r0", "e-01", "b", 10, 0)
        learned.ordered("r1", "e-01", "b", 10, 0)
        ended(learned, KvOutcome(loaded_blocks=10, loaded_bytes=10 << 20, seconds=0.2))
        learned.ended("r0")
    assert learned.transfer_s("a", "b", 10) == pytest.approx(0.1, rel=0.1)
