"""Sleep mode as in vLLM: the cache is dropped, requests wait, and the engine continues once it is woken."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.simulator.conftest import RunningEngine, StartEngine

BODY = {"prompt": "x" * 4000, "max_tokens": 2}


async def call(engine: RunningEngine, method: str, path: str, body: Any = None) -> Any:
    async with engine.http.request(method, engine.url + path, json=body) as answer:
        assert answer.status == 200
        return await answer.json()


async def cached(engine: RunningEngine) -> int:
    usage = (await call(engine, "POST", "/v1/completions", BODY))["usage"]
    return int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)


async def test_a_sleeping_engine_drops_its_cache_and_serves_once_it_is_woken(start_engine: StartEngine) -> None:
    engine = await start_engine()
    await cached(engine)
    assert await cached(engine) > 0
    assert await call(engine, "GET", "/is_sleeping") == {"is_sleeping": False}
    await call(engine, "POST", "/sleep?level=1")
    assert await call(engine, "GET", "/is_sleeping") == {"is_sleeping": True}
    async with engine.http.get(engine.url + "/metrics") as answer:
        assert 'sleep_state="awake"} 0.0' in await answer.text()
    waiting = asyncio.create_task(cached(engine))
    while engine.server.runtime.load == 0:
        await asyncio.sleep(0.01)
    assert not waiting.done()
    await call(engine, "POST", "/wake_up")
    assert await waiting == 0
    assert await call(engine, "GET", "/is_sleeping") == {"is_sleeping": False}


async def test_waking_an_engine_that_is_awake_changes_nothing(start_engine: StartEngine) -> None:
    engine = await start_engine(faults=True)
    await call(engine, "POST", "/fault", {"fault": "crawl"})
    await call(engine, "POST", "/wake_up")
    assert not engine.server.runtime.sleeps
    assert engine.server.runtime._reported.fault == "crawl"


async def test_sglang_has_no_sleep_mode(start_engine: StartEngine) -> None:
    engine = await start_engine(flavor="sglang")
    async with engine.http.post(engine.url + "/sleep") as answer:
        assert answer.status == 404
