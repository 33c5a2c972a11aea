"""Limits on how many engines can be ejected at once.

Engine health verdicts in a live pool: quarantine, slow start, and verdicts that are not applied.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.base.settings import BreakerSettings
from gateway.pools.engines.breaker import CONNECT, PAUSED, TIMEOUT, UNHEALTHY, Breaker
from gateway.pools.engines.health_verdict import load_share
from gateway.pools.engines.panic_threshold import excused_engines
from gateway.pools.pool.health_watch import slow_start
from tests.gateway.fake_engine import FakeEngine, fake_engine
from tests.gateway.live_gateway import LiveGateway, engine_entry, live_gateway, request, snapshot
from tests.patience import until


def fleet(engines: int, rejecting: int) -> list[Any]:
    """Return engines of which the first ones are ejected for rejecting."""
    breakers = [Breaker(BreakerSettings(), 0.0) for _ in range(engines)]
    for number, breaker in enumerate(breakers):
        breaker.observe_probe(True, "", 1.0)
        for _ in range(3 if number < rejecting else 0):
            breaker.record_rejection(401, 2.0, shared=False)
    names = (
        SimpleNamespace(engine_id=f"engine-{number}", role="mixed", desired_state="ready") for number in range(engines)
    )
    return [SimpleNamespace(entry=name, breaker=breaker) for name, breaker in zip(names, breakers, strict=True)]


CAUSES: dict[str, Callable[[Breaker], object]] = {
    "silent": lambda breaker: [breaker.observe_probe(False, "timed out", 3.0) for _ in range(2)],
    "unhealthy": lambda breaker: [breaker.observe_probe(False, "503", 3.0, cause=UNHEALTHY) for _ in range(2)],
    "timeout": lambda breaker: [breaker.record_failure(TIMEOUT, 3.0) for _ in range(3)],
    "connect": lambda breaker: [breaker.record_failure(CONNECT, 3.0) for _ in range(3)],
    "suspected": lambda breaker: breaker.record_stall("still", 3.0),
    "hung": lambda breaker: breaker.record_hang("still", 3.0),
}
DEAD: dict[str, Callable[[Breaker], object]] = {
    "refused": lambda breaker: breaker.observe_probe(False, "refused", 3.0, refused=True),
    "paused": lambda breaker: [breaker.observe_probe(False, "paused", 3.0, cause=PAUSED) for _ in range(2)],
}


@pytest.mark.parametrize("cause", CAUSES)
def test_no_cause_ejects_the_last_engine_of_a_role(cause: str) -> None:
    engines = fleet(4, 0)
    for engine in engines[:2]:
        engine.entry.role = "decode"
    for engine in engines[:3]:
        CAUSES[cause](engine.breaker)
    assert excused_engines(engines) == frozenset(), "the mixed one that is left does all"
    CAUSES[cause](engines[3].breaker)
    assert excused_engines(engines) == {"engine-0", "engine-1", "engine-2", "engine-3"}
    engines[2].entry.desired_state = engines[3].entry.desired_state = "draining"
    assert excused_engines(engines) == {"engine-0", "engine-1"}


@pytest.mark.parametrize("cause", DEAD)
def test_dead_stalled_and_paused_engines_are_not_excused(cause: str) -> None:
    engines = fleet(3, 0)
    for engine in engines:
        DEAD[cause](engine.breaker)
    assert excused_engines(engines) == frozenset()
    CAUSES["silent"](engines[1].breaker)
    assert excused_engines(engines) == {"engine-1"}


def test_an_only_engine_gets_the_pause_that_it_asks_for() -> None:
    engines = fleet(1, 0)
    engines[0].breaker.record_throttle(9.0, 3.0)
    assert excused_engines(engines) == frozenset()


def test_a_tenth_and_at_least_one_stays_ejected_if_the_cause_is_unknown() -> None:
    assert len(excused_engines(fleet(8, 6))) == 5
    assert len(excused_engines(fleet(20, 6))) == 4


def test_up_to_half_stays_ejected_if_others_accepted_the_rejected_requests() -> None:
    engines = fleet(8, 6)
    for engine in engines[1:4]:
        engine.breaker.contradicted = True
    assert excused_engines(engines) == {"engine-0", "engine-4", "engine-5"}
    for engine in engines[:6]:
        engine.breaker.contradicted = True
    assert len(excused_engines(engines)) == 2, "half of the pool carries on"


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
