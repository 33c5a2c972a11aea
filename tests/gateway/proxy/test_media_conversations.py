"""Conversations with images in a pool with exact keys, over real HTTP and KV events of simulated engines."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bench.live.loopback_ports import free_ports
from gateway.bus.bus import InProcessBus
from gateway.contracts.snapshot import EngineEntry, encode_snapshot
from gateway.gateway import SNAPSHOT_TOPIC
from simulator.engine_models.engine_profile import EngineProfile
from simulator.engine_server.settings import EngineSettings
from tests.gateway.proxy.media_chats import CHAT, ask, user
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import KEY, MODEL, OTHER_KEY, ServedGateway, served, snapshot
from tests.patience import until
from tests.simulated_engine import serving

BLOCK = 16
MEDIA_TOKENS = 320
ENGINES = ("engine-0", "engine-1")


@asynccontextmanager
async def engine_server(window: int) -> AsyncIterator[EngineSettings]:
    port, events, replay = free_ports(3)
    profile = EngineProfile(block_tokens=BLOCK, num_blocks=2048, recompute_last_block=True)
    settings = EngineSettings(
        port=port, served_model=MODEL, media_tokens=MEDIA_TOKENS, seed=b"media", time_scale=1000.0, profile=profile,
        sliding_window=window, kv_events_port=events, kv_replay_port=replay,
    )  # fmt: skip
    async with serving(settings):
        yield settings


@pytest.fixture
async def engines(request: pytest.FixtureRequest) -> AsyncIterator[list[EngineSettings]]:
    """Run the engines; a test's parameter sets the tokens of their sliding window, if any."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(engine_server(getattr(request, "param", 0))) for _ in ENGINES]


@asynccontextmanager
async def gateway_over(
    engines: Sequence[EngineSettings], state_dir: Path, *, isolated: bool = False
) -> AsyncIterator[ServedGateway]:
    entries = tuple(
        EngineEntry(
            engine_id=name, name=name, pool_id="pool", url=f"http://127.0.0.1:{item.port}",
            kv_events_endpoint=f"tcp://127.0.0.1:{item.kv_events_port}",
            kv_replay_endpoint=f"tcp://127.0.0.1:{item.kv_replay_port}",
        )
        for name, item in zip(ENGINES, engines, strict=True)
    )  # fmt: skip
    bus = InProcessBus()
    made = replace(snapshot([], block_tokens=BLOCK, isolated=isolated), engines=entries)
    bus.publish(SNAPSHOT_TOPIC, encode_snapshot(made))
    async with served([], state_dir, bus=bus) as gateway:
        await until(lambda: all(engine.trust.grade == "exact" for engine in gateway.pool.engines.values()))
        yield gateway


def image(content: str, **more: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{content * 2000}"}, **more}


@pytest.mark.parametrize("engines", [0, 80, 400], ids=["plain", "hybrid", "wide"], indirect=True)
async def test_a_conversation_that_begins_with_an_image_stays_on_its_engine(
    engines: list[EngineSettings], tmp_path: Path
) -> None:
    talks = [[user(image(letter), f"What is the {letter}?")] for letter in "ABCD"]
    last: dict[int, tuple[str, int]] = {}
    async with gateway_over(engines, tmp_path) as gateway:
        for turn in range(4):
            # Another order each time, so that no engine has a conversation by its turn alone.
            for number in (0, 1, 2, 3) if turn % 2 else (2, 0, 3, 1):
                engine, predicted, cached, tokens = await ask(gateway, talks[number])
                if turn:
                    before, length = last[number]
                    assert engine == before
                    # All of the turn before but its end, as for text.
                    assert cached >= length - 2 * BLOCK
                    assert -BLOCK <= predicted - cached <= 6 * BLOCK
                last[number] = engine, tokens
                talks[number] += [{"role": "assistant", "content": "ok " * 30}, user(f"And turn {turn}? " * 5)]
        assert {engine for engine, _ in last.values()} == set(ENGINES)
        metrics = await gateway.metrics()
        assert 'headway_key_sources_total{pool="pool",source="media"} 16' in metrics
        await until(lambda: gateway.pool.traffic.summary(0.0).approximate_share == 1.0)
        grades = {item.index_trust(by_dispatches=False).grade for item in gateway.pool.engines.values()}
        assert grades == {"exact"}


async def test_a_conversation_with_an_image_url_stays_although_no_event_names_it(
    engines: list[EngineSettings], tmp_path: Path
) -> None:
    talks = [
        [user({"type": "image_url", "image_url": {"url": f"https://example.org/{number}.png"}}, "What is it?")]
        for number in range(4)
    ]
    async with gateway_over(engines, tmp_path) as gateway:
        homes = [(await ask(gateway, talk))[0] for talk in talks]
        for number in (2, 0, 3, 1):
            talks[number] += [{"role": "assistant", "content": "ok"}, user("And now?")]
            engine, predicted, cached, _ = await ask(gateway, talks[number])
            assert engine == homes[number]
            assert min(predicted, cached) >= MEDIA_TOKENS
    assert set(homes) == set(ENGINES)


async def test_text_before_the_image_has_text_keys(engines: list[EngineSettings], tmp_path: Path) -> None:
    system = {"role": "system", "content": "Be brief and kind. " * 40}
    async with gateway_over(engines, tmp_path) as gateway:
        engine, *_ = await ask(gateway, [system, {"role": "user", "content": "hello"}])
        # An engine's events may come after its answer.
        await until(lambda: len(gateway.pool.router.index) > 0)
        again, predicted, cached, _ = await ask(gateway, [system, user(image("A"), "What is it?")])
        assert again == engine
        assert 0 < predicted <= cached <= predicted + BLOCK


async def test_another_image_with_the_same_text_shares_no_hit(engines: list[EngineSettings], tmp_path: Path) -> None:
    async with gateway_over(engines, tmp_path) as gateway:
        for letter in "AB":
            _, predicted, cached, _ = await ask(gateway, [user(image(letter), "What is it? " * 40)])
            assert (predicted, cached) == (0, 0)


async def test_equal_images_of_two_tenants_share_no_hit(engines: list[EngineSettings], tmp_path: Path) -> None:
    messages = [user(image("A"), "What is it? " * 40)]
    async with gateway_over(engines, tmp_path, isolated=True) as gateway:
        for key in (KEY, OTHER_KEY):
            assert (await ask(gateway, messages, key))[1:3] == (0, 0)
        for key in (KEY, OTHER_KEY):
            _, predicted, cached, _ = await ask(gateway, messages, key)
            assert min(predicted, cached) >= MEDIA_TOKENS


async def test_another_gateway_matches_the_image_through_the_engines_events(
    engines: list[EngineSettings], tmp_path: Path
) -> None:
    talks = {letter: [user(image(letter), "What is it?")] for letter in "ABCD"}
    async with gateway_over(engines, tmp_path) as gateway:
        homes = {letter: (await ask(gateway, talk))[0] for letter, talk in talks.items()}
    async with gateway_over(engines, tmp_path / "another") as gateway:
        for letter, talk in talks.items():
            engine, predicted, cached, _ = await ask(gateway, talk)
            assert engine == homes[letter]
            assert predicted >= MEDIA_TOKENS
            assert cached >= MEDIA_TOKENS


async def test_an_image_that_the_engine_dropped_is_not_a_hit(engines: list[EngineSettings], tmp_path: Path) -> None:
    talk = [user(image("A"), "What is it?")]
    async with gateway_over(engines, tmp_path) as gateway:
        engine, *_ = await ask(gateway, talk)
        live = gateway.pool.engines[engine]
        port = engines[ENGINES.index(engine)].port
        async with gateway.client.post(f"http://127.0.0.1:{port}/reset_prefix_cache") as response:
            assert (await response.json())["success"]
        # The engine reports it with the next batch.
        other = {"model": MODEL, "messages": [user("something else " * 20)], "max_tokens": 1}
        async with gateway.client.post(f"http://127.0.0.1:{port}{CHAT}", json=other) as response:
            assert response.status == 200
        await until(lambda: live.intake.ledger.counts["AllBlocksCleared"])
        _, predicted, cached, _ = await ask(gateway, talk)
        assert (predicted, cached) == (0, 0)


async def test_media_names_sent_to_engines_reveal_nothing_about_clients(tmp_path: Path) -> None:
    linked = {"type": "image_url", "image_url": {"url": "https://example.org/now.png"}, "uuid": "logo"}
    bare = {"type": "image_url", "image_url": None, "uuid": "logo"}
    parts = (image("A", uuid="logo"), image("A"), image("B"), bare, linked)
    async with ScriptedEngine() as engine, served([engine.url], tmp_path, isolated=True) as gateway:
        names = []
        for key in (KEY, OTHER_KEY, KEY):
            body = {"model": MODEL, "messages": [user("look", *parts)]}
            assert (await gateway.post(CHAT, body, key=key))[0] == 200
            names.append([part.get("uuid") for part in engine.bodies[-1]["messages"][0]["content"][1:]])
        status, answer, _ = await gateway.post("/v1/embeddings", {"model": MODEL, "messages": [user(parts[0])]})
        assert (status, answer["error"]["param"]) == (400, "uuid")
    first, other, again = names
    assert first == again
    assert first[0] == first[1]
    assert first[4] is other[4] is None
    assert len({*first[:4], *other[:4]}) == 6
    assert "logo" not in {*first, *other}
