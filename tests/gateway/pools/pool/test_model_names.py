"""Aliases and LoRA adapters are listed, routed to the engines that serve them, and separate in every cache."""

from __future__ import annotations

from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bench.live.loopback_ports import free_ports
from gateway.bus.bus import InProcessBus
from gateway.contracts.snapshot import ApiKeyEntry, EngineEntry, PoolEntry, encode_snapshot
from gateway.gateway import SNAPSHOT_TOPIC
from simulator.engine_models.engine_profile import EngineProfile
from simulator.engine_server.settings import EngineSettings
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import CHAT, MODEL, ServedGateway, served, snapshot
from tests.patience import until
from tests.simulated_engine import serving

BASE = {"object": "model", "owned_by": "vllm", "root": "/models/tiny", "parent": None, "max_model_len": 512}
CARDS = [
    {"id": MODEL, "created": 11, **BASE},
    {"id": "nick", "created": 12, **BASE},
    {"id": "sql", "created": 13, **BASE, "root": "/adapters/sql", "parent": MODEL, "max_model_len": None},
    {"id": "another", "created": 14, **BASE, "root": "/models/another"},
]
LIMITED = "hw_test_key_of_models"


def chat(model: str, text: str = "hello") -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text}]}


@pytest.fixture
async def engines() -> AsyncIterator[tuple[ScriptedEngine, ScriptedEngine]]:
    """Run two engines of one model; only the second has the alias and the adapter."""
    async with ScriptedEngine() as plain, ScriptedEngine() as able:
        plain.cards, able.cards = CARDS[:1], list(CARDS)
        yield plain, able


@pytest.fixture
async def gateway(engines: tuple[ScriptedEngine, ScriptedEngine], tmp_path: Path) -> AsyncIterator[ServedGateway]:
    async with served([engine.url for engine in engines], tmp_path) as running:
        await until(lambda: running.pool.names.engines("sql"))
        yield running


async def reread(gateway: ServedGateway) -> None:
    """Return when each engine's models were read again."""
    engines = gateway.pool.engines.values()
    for engine in engines:
        engine.doubt_models()
    await until(lambda: all(engine._models_due_s > 0 for engine in engines))


async def test_models_are_listed_as_their_engines_list_them(
    gateway: ServedGateway, engines: tuple[ScriptedEngine, ScriptedEngine]
) -> None:
    status, listing = await gateway.get("/v1/models")
    assert status == 200
    length = gateway.pool.entry.max_prompt_tokens
    shared = {"object": "model", "owned_by": "headway", "max_model_len": length}
    assert listing["data"] == [
        {"id": "nick", "created": 12, "root": "/models/tiny", "parent": None, **shared},
        {"id": "sql", "created": 13, "root": "/adapters/sql", "parent": MODEL, **shared},
        {"id": MODEL, "created": 11, "root": "/models/tiny", "parent": None, **shared},
    ]
    assert (await gateway.get("/v1/models/sql"))[1] == listing["data"][1]
    assert (await gateway.get("/v1/models/another"))[0] == 404
    # vLLM answers the time of the question; a model does not become newer by it.
    engines[1].cards = [{**card, "created": 99} for card in CARDS]
    await reread(gateway)
    assert (await gateway.get("/v1/models"))[1] == listing


@pytest.mark.parametrize("name", ["sql", "nick"])
async def test_only_engines_that_serve_the_name_get_its_requests(
    gateway: ServedGateway, engines: tuple[ScriptedEngine, ScriptedEngine], name: str
) -> None:
    plain, able = engines
    for number in range(6):
        status, _, headers = await gateway.post(CHAT, chat(name, f"prompt {number} " * 20))
        assert status == 200
    assert not plain.bodies
    assert [body["model"] for body in able.bodies] == [name] * 6
    _, explained = await gateway.get(f"/api/v1/explain/{headers['x-headway-decision']}")
    assert explained["model"] == name
    for question in ({"block_hashes": [1, 2], "wait": False}, {"block_hashes": [1, 2]}, chat(name)):
        status, answer, _ = await gateway.post("/api/v1/route", {"model": name, **question})
        assert (status, answer["engine"]["id"]) == (200, "engine-1")
    assert (await gateway.post("/tokenize", {"model": name, "prompt": "x"}))[0] == 200


async def test_an_unloaded_adapter_is_unknown_after_the_next_reading(
    gateway: ServedGateway, engines: tuple[ScriptedEngine, ScriptedEngine]
) -> None:
    plain, able = engines
    able.cards = CARDS[:2]
    able.status = 404
    # The engine's own 404 has its models read at once.
    assert (await gateway.post(CHAT, chat("sql")))[0] == 404
    await until(lambda: not gateway.pool.names.engines("sql"))
    able.status = 200
    status, answer, _ = await gateway.post(CHAT, chat("sql"))
    assert (status, answer["error"]["code"]) == (404, "model_not_found")
    assert not plain.bodies
    plain.cards = CARDS
    await reread(gateway)
    await until(lambda: gateway.pool.names.engines("sql") == {"engine-0"})
    assert (await gateway.post(CHAT, chat("sql")))[0] == 200
    assert [body["model"] for body in plain.bodies] == ["sql"]


async def test_no_other_engine_gets_the_request_when_the_only_one_with_the_adapter_is_out(
    gateway: ServedGateway, engines: tuple[ScriptedEngine, ScriptedEngine]
) -> None:
    plain, able = engines
    await able.stop()
    gateway.pool.engines["engine-1"].probe_now()
    await until(lambda: not gateway.pool.accepts("engine-1"))
    status, answer, headers = await gateway.post(CHAT, chat("sql"))
    assert (status, answer["error"]["code"]) == (503, "no_engine")
    assert "retry-after" in headers
    assert not plain.bodies
    assert (await gateway.post(CHAT, chat(MODEL)))[0] == 200


async def test_a_failed_request_is_retried_on_an_engine_with_its_adapter(
    gateway: ServedGateway, engines: tuple[ScriptedEngine, ScriptedEngine]
) -> None:
    plain, able = engines
    able.die_before_first_byte = True
    assert (await gateway.post(CHAT, chat("sql")))[0] == 503
    assert not plain.bodies
    assert len(able.bodies) > 1


async def test_a_request_queued_for_an_engine_without_the_adapter_is_placed_again(
    gateway: ServedGateway, engines: tuple[ScriptedEngine, ScriptedEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, able = engines
    decide, asked = gateway.pool.decide, []

    async def decide_wrongly_once(request: Any, *, hold: bool, excluded: frozenset[str]) -> Any:
        asked.append((hold, set(excluded)))
        without = excluded if len(asked) > 1 else frozenset({"engine-1"})
        return await decide(request, hold=hold, excluded=without)

    monkeypatch.setattr(gateway.pool, "decide", decide_wrongly_once)
    assert (await gateway.post(CHAT, chat("sql")))[0] == 200
    assert asked == [(True, {"engine-0"}), (False, {"engine-0"})]
    assert (len(plain.bodies), len(able.bodies)) == (0, 1)
    assert not len(gateway.pool.router.reservations)


async def test_a_key_can_use_adapters_of_its_granted_models(
    engines: tuple[ScriptedEngine, ScriptedEngine], tmp_path: Path
) -> None:
    plain, able = engines
    made = snapshot([able.url])
    other = PoolEntry(pool_id="other", name="other", region="here", served_model="another", block_tokens=16)
    key = ApiKeyEntry(
        key_id="kl", sha256=sha256(LIMITED.encode()).hexdigest(), tenant_id="tenant-l", served_models=("another",)
    )
    made = replace(
        made,
        pools=(*made.pools, other),
        engines=(*made.engines, EngineEntry(engine_id="o", name="o", pool_id="other", url=plain.url)),
        api_keys=(*made.api_keys, key),
    )
    plain.cards = [{**BASE, "id": "another"}, {**BASE, "id": "both", "parent": "another"}]
    able.cards = [*CARDS, {**BASE, "id": "both", "parent": MODEL}]
    bus = InProcessBus()
    bus.publish(SNAPSHOT_TOPIC, encode_snapshot(made))
    async with served([], tmp_path, bus=bus) as gateway:
        await until(lambda: all(pool.names.engines("both") for pool in gateway.gateway.pools.values()))
        assert [card["id"] for card in (await gateway.get("/v1/models", key=LIMITED))[1]["data"]] == ["another", "both"]
        assert (await gateway.post(CHAT, chat("sql"), key=LIMITED))[0] == 404
        assert (await gateway.post(CHAT, chat("both"), key=LIMITED))[0] == 200
        assert (await gateway.post(CHAT, chat("sql")))[0] == 200
        # Of two models that have it, the first by name is meant; a served model's own name always is.
        assert (await gateway.get("/v1/models/both"))[1]["parent"] == "another"
        assert (await gateway.get("/v1/models/another"))[1]["id"] == "another"
        assert (await gateway.post(CHAT, chat("both")))[0] == 200
    assert [body["model"] for body in plain.bodies] == ["both", "both"]


async def test_sglang_adapters_are_not_routed_because_engines_would_serve_the_base_model(
    engines: tuple[ScriptedEngine, ScriptedEngine], gateway: ServedGateway
) -> None:
    engines[1].cards = [{**card, "owned_by": "sglang"} for card in CARDS]
    await reread(gateway)
    await until(lambda: not gateway.pool.names.engines("sql"))
    assert (await gateway.post(CHAT, chat("sql")))[0] == 404


@pytest.fixture
async def simulated() -> AsyncIterator[EngineSettings]:
    """Run a simulated engine with an adapter that publishes events as vLLM does."""
    port, events, replay = free_ports(3)
    profile = EngineProfile(block_tokens=16, num_blocks=512, recompute_last_block=True)
    settings = EngineSettings(
        port=port, served_model=MODEL, lora=("sql", "law"), seed=b"lora", time_scale=50.0, profile=profile,
        kv_events_port=events, kv_replay_port=replay,
    )  # fmt: skip
    async with serving(settings):
        yield settings


@pytest.mark.parametrize("isolated", [False, True])
async def test_adapters_and_their_base_share_no_hit_and_each_is_predicted_exactly(
    simulated: EngineSettings, tmp_path: Path, isolated: bool
) -> None:
    engine = EngineEntry(
        engine_id="engine-0", name="e0", pool_id="pool", url=f"http://127.0.0.1:{simulated.port}",
        kv_events_endpoint=f"tcp://127.0.0.1:{simulated.kv_events_port}",
        kv_replay_endpoint=f"tcp://127.0.0.1:{simulated.kv_replay_port}",
    )  # fmt: skip
    bus = InProcessBus()
    bus.publish(SNAPSHOT_TOPIC, encode_snapshot(replace(snapshot([], isolated=isolated), engines=(engine,))))
    names = ["sql", MODEL, "law"]
    async with served([], tmp_path, bus=bus) as gateway:
        live = gateway.pool.engines["engine-0"]
        await until(lambda: live.trust.grade == "exact" and gateway.pool.names.engines("sql"))
        first = []
        for number, name in enumerate(names, 1):
            first.append(await hits(gateway, name))
            await until(lambda number=number: live.intake.ledger.counts["BlockStored"] == number)
        again = [await hits(gateway, name) for name in names]
    assert first == [(0, 0)] * 3
    assert all(predicted == cached > 0 for predicted, cached in again), again


async def hits(gateway: ServedGateway, model: str) -> tuple[int, int]:
    """Return the predicted and the reported cached tokens of the same prompt."""
    status, answer, headers = await gateway.post(CHAT, {**chat(model, "The same text. " * 20), "max_tokens": 2})
    assert status == 200, answer
    _, explained = await gateway.get(f"/api/v1/explain/{headers['x-headway-decision']}")
    return explained["decision"]["hit_tokens"], answer["usage"]["prompt_tokens_details"]["cached_tokens"]
