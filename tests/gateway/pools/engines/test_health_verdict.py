"""Engine health verdicts in a live pool: quarantine, slow start, and verdicts that are not applied."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from gateway.pools.engines.health_verdict import load_share
from gateway.pools.pool.health_watch import slow_start
from tests.gateway.fake_engine import FakeEngine, fake_engine
from tests.gateway.live_gateway import LiveGateway, engine_entry, live_gateway, request, snapshot
from tests.patience import until

NAMES = ("a", "b", "c")


def entries(engine: FakeEngine, **verdicts: dict[str, Any]) -> list[Any]:
    return [engine_entry(name, engine.url, **verdicts.get(name, {})) for name in NAMES]


def verdict(state: str, **fields: Any) -> dict[str, Any]:
    return {"health": state, "health_reason": "it stands still", "health_since": time.time(), **fields}


@pytest.mark.parametrize(
    ("state", "after_s", "share"),
    [
        ("healthy", 0.0, 1.0),
        ("suspect", 0.0, 1.0),
        ("quarantined", 1e6, 0.0),
        ("probation", -5.0, 0.1),
        ("probation", 0.0, 0.1),
        ("probation", 15.0, 0.5),
        ("probation", 30.0, 1.0),
    ],
)
def test_the_traffic_share_follows_the_verdict(state: str, after_s: float, share: float) -> None:
    entry = engine_entry("a", "http://x", health=state, health_since=100.0, slow_start_from=0.1, slow_start_s=30.0)
    assert load_share(entry, 100.0 + after_s) == pytest.approx(share)


def accepting(live: LiveGateway) -> set[str]:
    return {name for name in NAMES if live.pool.accepts(name)}


async def test_a_quarantined_engine_gets_no_work_and_states_why(tmp_path: Path) -> None:
    async with fake_engine() as engine, live_gateway(tmp_path, snapshot(entries(engine))) as live:
        assert accepting(live) == {"a", "b", "c"}
        live.publish(snapshot(entries(engine, b=verdict("quarantined")), version=2))
        await until(lambda: accepting(live) == {"a", "c"})
        await until(lambda: live.shown("b").state == "quarantined")
        assert live.shown("b").reason == "it stands still"
        live.publish(snapshot(entries(engine), version=3))
        await until(lambda: accepting(live) == {"a", "b", "c"})


async def test_verdicts_that_would_leave_no_engine_are_not_applied(tmp_path: Path) -> None:
    all_out = {name: verdict("quarantined") for name in NAMES}
    async with fake_engine() as engine, live_gateway(tmp_path, snapshot(entries(engine, **all_out))) as live:
        await until(lambda: accepting(live) == {"a", "b", "c"})


async def test_an_engine_in_probation_is_limited_to_its_share(tmp_path: Path) -> None:
    coming_back = {"c": verdict("probation", slow_start_from=0.3, slow_start_s=1e6)}
    async with fake_engine() as engine, live_gateway(tmp_path, snapshot(entries(engine, **coming_back))) as live:
        for number in range(60):
            await live.pool.decide(request(f"r{number}", prompt_tokens=2000), hold=False)
        running = {load.engine_id: load.running for load in live.pool.router.loads(time.monotonic())}
        assert 1 <= running["c"] < min(running["a"], running["b"])
        slow_start(live.pool, {"a": 9, "b": 9, "c": 2}, time.time())
        assert accepting(live) == {"a", "b"}
        slow_start(live.pool, {"a": 9, "b": 9, "c": 1}, time.time())
        assert accepting(live) == {"a", "b", "c"}


async def test_no_engine_is_limited_if_all_are_in_probation(tmp_path: Path) -> None:
    coming_back = {name: verdict("probation", slow_start_from=0.1, slow_start_s=1e6) for name in NAMES}
    async with fake_engine() as engine, live_gateway(tmp_path, snapshot(entries(engine, **coming_back))) as live:
        slow_start(live.pool, dict.fromkeys(NAMES, 5), time.time())
        assert accepting(live) == {"a", "b", "c"}
