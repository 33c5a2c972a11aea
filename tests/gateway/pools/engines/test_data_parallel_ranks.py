"""An engine with two data-parallel ranks behind one address: each is a target with its own cache and queue."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bench.live.loopback_ports import free_port, free_ports
from gateway.bus.bus import InProcessBus
from gateway.contracts.snapshot import EngineEntry, encode_snapshot
from gateway.gateway import SNAPSHOT_TOPIC
from gateway.pools.engines.breaker import HTTP_5XX
from simulator.engine_models.engine_profile import EngineProfile
from simulator.engine_server.settings import EngineSettings
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import MODEL, ServedGateway, served, snapshot
from tests.patience import until
from tests.simulated_engine import serving

BLOCK = 16
CONVERSATIONS = [f"Conversation {number} about its own things. " * 8 for number in range(8)]


@pytest.fixture
async def process() -> AsyncIterator[EngineSettings]:
    """One simulated process with two ranks, whose sockets use consecutive ports."""
    events, replay = _two_ports(), _two_ports()
    profile = EngineProfile(block_tokens=BLOCK, num_blocks=512, recompute_last_block=True)
    settings = EngineSettings(
        port=free_port(), served_model=MODEL, seed=b"ranks", time_scale=50.0, profile=profile, ranks=2,
        kv_events_port=events, kv_replay_port=replay,
    )  # fmt: skip
    async with serving(settings):
        yield settings


def _two_ports() -> int:
    """Return a free port whose successor is free too."""
    while True:
        first, second = free_ports(2)
        if second == first + 1:
            return first


@asynccontextmanager
async def gateway_over(engines: list[EngineEntry], tmp_path: Path) -> AsyncIterator[ServedGateway]:
    bus = InProcessBus()
    bus.publish(SNAPSHOT_TOPIC, encode_snapshot(replace(snapshot([]), engines=tuple(engines))))
    async with served([], tmp_path, bus=bus) as gateway:
        yield gateway


def ranks_at(url: str, **fields: Any) -> list[EngineEntry]:
    return [
        EngineEntry(engine_id=f"engine-{rank}", name=f"e-rank-{rank}", pool_id="pool", url=url, rank=rank, **item)
        for rank in range(2)
        for item in [{name: value(rank) for name, value in fields.items()}]
    ]


async def test_prompts_return_to_the_rank_that_cached_them(process: EngineSettings, tmp_path: Path) -> None:
    entries = ranks_at(
        f"http://127.0.0.1:{process.port}",
        kv_events_endpoint=lambda rank: f"tcp://127.0.0.1:{process.kv_events_port + rank}",
        kv_replay_endpoint=lambda rank: f"tcp://127.0.0.1:{process.kv_replay_port + rank}",
    )
    sent: dict[str, int] = defaultdict(int)
    async with gateway_over(entries, tmp_path) as gateway:
        engines = gateway.pool.engines
        await until(lambda: all(engine.trust.grade == "exact" for engine in engines.values()))
        first = [await ask(gateway, text, sent) for text in CONVERSATIONS]
        assert {engine for engine, _, _ in first} == {"engine-0", "engine-1"}
        assert {(predicted, cached) for _, predicted, cached in first} == {(0, 0)}
        asked = {engine: sum(item == engine for item, _, _ in first) for engine in engines}
        # Each rank publishes its own blocks on a socket of its own, and no other's.
        await until(
            lambda: {name: engine.intake.ledger.counts["BlockStored"] for name, engine in engines.items()} == asked
        )
        for text, (engine, _, _) in zip(CONVERSATIONS, first, strict=True):
            again, predicted, cached = await ask(gateway, text, sent)
            assert again == engine
            assert predicted == cached > 0
        async with gateway.client.get(f"http://127.0.0.1:{process.port}/metrics") as answer:
            explained = re.findall(
                r'^vllm:prompt_tokens_total\{engine="(\d)".* (\S+)$', await answer.text(), re.MULTILINE
            )
    assert {f"engine-{rank}": int(float(tokens)) for rank, tokens in explained} == sent, "each request reached its rank"


async def ask(gateway: ServedGateway, text: str, sent: dict[str, int]) -> tuple[str, int, int]:
    """Return the engine, the predicted and the reported cached tokens; append the prompt tokens to `sent`."""
    body = {"model": MODEL, "max_tokens": 2, "messages": [{"role": "user", "content": text}]}
    status, answer, headers = await gateway.post("/v1/chat/completions", body)
    assert status == 200, answer
    _, explained = await gateway.get(f"/api/v1/explain/{headers['x-headway-decision']}")
    engine = explained["decision"]["engine_id"]
    sent[engine] += answer["usage"]["prompt_tokens"]
    return engine, explained["decision"]["hit_tokens"], answer["usage"]["prompt_tokens_details"]["cached_tokens"]


async def test_the_decision_api_names_the_rank_in_requests_and_responses(tmp_path: Path) -> None:
    async with ScriptedEngine() as engine, gateway_over(ranks_at(engine.url), tmp_path) as gateway:
        body = {"model": MODEL, "messages": [{"role": "user", "content": "x" * 40}]}
        status, answer, _ = await gateway.post("/api/v1/route", body)
        assert status == 200
        rank = answer["engine"]["rank"]
        assert answer["engine"] == {
            "id": f"engine-{rank}", "name": f"e-rank-{rank}", "url": engine.url, "rank": rank
        }  # fmt: skip
        # A client's own wish for a rank does not get through.
        status, _, headers = await gateway.post("/v1/chat/completions", body, headers={"x-data-parallel-rank": "7"})
        assert status == 200
        _, explained = await gateway.get(f"/api/v1/explain/{headers['x-headway-decision']}")
        chosen = explained["decision"]["engine_id"].removeprefix("engine-")
        assert engine.headers[-1]["x-data-parallel-rank"] == chosen


async def test_a_failure_of_one_rank_probes_the_other_ranks_of_its_process(tmp_path: Path) -> None:
    async with ScriptedEngine() as engine, ScriptedEngine() as elsewhere:
        other = EngineEntry(engine_id="other", name="other", pool_id="pool", url=elsewhere.url, rank=0)
        async with gateway_over([*ranks_at(engine.url), other], tmp_path) as gateway:
            engines = gateway.pool.engines
            await until(lambda: all(item.breaker.state == "closed" for item in engines.values()))
            await until(lambda: not any(item._wake.is_set() for item in engines.values()))
            engines["engine-0"].breaker.record_failure(HTTP_5XX, time.monotonic())
            assert engines["engine-1"]._wake.is_set()
            assert not engines["other"]._wake.is_set()
