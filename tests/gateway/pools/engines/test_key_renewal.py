"""A new key in a variable's file reaches engines without a restart, and each engine keeps the key that it accepts."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web

from gateway.base.engine_api_keys import FLEET_KEY, engine_key
from gateway.base.loop_lag import LoopLag
from gateway.pools.engines.live_engine import LiveEngine
from gateway.pools.engines.vllm_adapter import VllmAdapter
from tests.gateway.fake_engine import FakeEngine, fake_engine
from tests.gateway.live_gateway import SETTINGS, engine_entry

VARIABLE = "HEADWAY_ENGINE_KEY_CHAT"


class KeyedEngine(FakeEngine):
    """An engine that lists its models only for these keys."""

    accepted: tuple[str, ...] = ("old",)

    def models(self) -> web.StreamResponse:
        """Respond as vLLM does with --api-key."""
        sent = self.asked[-1][2].get("Authorization", "")
        known = sent.removeprefix("Bearer ") in self.accepted
        return web.json_response({"data": []}) if known else web.Response(status=401)


@pytest_asyncio.fixture
async def engine() -> AsyncIterator[KeyedEngine]:
    async with fake_engine() as running:
        running.__class__ = KeyedEngine
        running.answers["/v1/models"] = running.models
        yield running


@pytest.fixture
def key_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "key"
    path.write_text("old\n")
    monkeypatch.setenv(f"{VARIABLE}_FILE", str(path))
    return path


async def test_an_engine_gets_its_previous_key_until_it_accepts_the_new_one(
    engine: KeyedEngine, key_file: Path
) -> None:
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        live = LiveEngine(
            engine_entry("a", engine.url, key_variable=VARIABLE), 1, served_model="m", session=session,
            settings=SETTINGS, lag=LoopLag(), now=time.monotonic(),
        )  # fmt: skip

        async def sent() -> str:
            live.doubt_models()
            await live._probe()
            assert not live.key_rejected
            return live.addressed({})["authorization"]

        assert await sent() == "Bearer old"
        key_file.write_text("new\n")
        assert await sent() == "Bearer old"
        engine.accepted = ("old", "new")
        assert await sent() == "Bearer new"
        engine.accepted = ("new",)
        assert await sent() == "Bearer new"
        key_file.unlink()
        assert await sent() == "Bearer new", "an unreadable file takes no key away"


async def test_a_prober_renews_the_key_of_its_plain_connection(engine: KeyedEngine) -> None:
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        adapter = VllmAdapter(session, engine.url, bearer="old", plain=True, timeout_s=2.0)
        assert not await adapter.renew_key("new")
        assert not await adapter.renew_key("old")
        engine.accepted = ("new",)
        assert await adapter.renew_key("new")
        await adapter.load()
        assert engine.asked[-1][2]["Authorization"] == "Bearer new"
        adapter.close()


def test_the_fleets_key_is_read_again_from_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert engine_key(FLEET_KEY, "of the start") == "of the start"
    (tmp_path / "key").write_text("one")
    monkeypatch.setenv(f"{FLEET_KEY}_FILE", str(tmp_path / "key"))
    assert engine_key(FLEET_KEY, "of the start") == "one"
    (tmp_path / "key").write_text("two")
    assert engine_key(FLEET_KEY, "of the start") == "two"
