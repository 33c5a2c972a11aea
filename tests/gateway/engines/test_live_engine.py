"""One engine: its reports, and which of them betray a new process."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import aiohttp
import pytest
import pytest_asyncio

from gateway.base.loop_lag import LoopLag
from gateway.contracts.engine_report import EngineReport
from gateway.engines.live_engine import LiveEngine
from tests.gateway.live_gateway import SETTINGS, engine_entry

NOW = 1000.0


@pytest_asyncio.fixture
async def engine() -> AsyncIterator[LiveEngine]:
    async with aiohttp.ClientSession() as session:
        yield LiveEngine(
            engine_entry("a", "http://127.0.0.1:1", speed=2.0),
            3,
            served_model="m",
            session=session,
            settings=SETTINGS,
            lag=LoopLag(),
            now=NOW,
        )


def report(at: float, **fields: object) -> EngineReport:
    known: dict[str, object] = {"reachable": True, "healthy": True, "reason": ""}
    return EngineReport(engine_id="a", at=at, **{**known, **fields})  # type: ignore[arg-type]


async def test_facts_say_what_the_router_needs(engine: LiveEngine) -> None:
    facts = engine.facts(by_dispatches=True, accepts=True)
    assert (facts.engine_id, facts.incarnation, facts.accepts, facts.speed, facts.trust) == ("a", 3, True, 2.0, 0.5)


async def test_without_event_endpoint_an_exact_index_is_blind(engine: LiveEngine) -> None:
    assert engine.facts(by_dispatches=False, accepts=True).trust == 0.0
    assert engine.index_trust(by_dispatches=False).grade == "blind"
    assert engine.index_trust(by_dispatches=True).grade == "degraded"


async def test_older_reports_are_ignored(engine: LiveEngine) -> None:
    unix = time.time()
    engine.take_report(report(unix, running=5), NOW, unix)
    engine.take_report(report(unix - 1.0, running=9), NOW, unix)
    assert engine.report is not None
    assert engine.report.running == 5


async def test_a_stale_report_says_nothing_about_health(engine: LiveEngine) -> None:
    unix = time.time()
    engine.breaker.observe_probe(True, "", NOW)
    for count in range(20):
        engine.take_report(report(unix - 60.0 + count, reachable=False, healthy=False), NOW + count, unix)
    assert engine.breaker.accepts
    assert engine.report_age_s(NOW + 19.0) == pytest.approx(41.0)


async def test_report_age_is_measured_on_the_monotonic_clock(engine: LiveEngine) -> None:
    assert engine.report_age_s(NOW) is None
    engine.take_report(report(500.0), NOW, 500.2)
    assert engine.report_age_s(NOW + 1.0) == pytest.approx(1.2)
    engine.take_report(report(600.0), NOW + 2.0, 599.0)
    assert engine.report_age_s(NOW + 2.0) == 0.0


async def test_a_restart_counted_already_is_not_counted_by_its_process_start(engine: LiveEngine) -> None:
    unix = time.time()
    assert not engine.take_report(report(unix, process_start=unix - 50.0), NOW, unix)
    engine.new_incarnation(NOW + 1.0)
    assert engine.incarnated_since(NOW + 0.5)
    assert not engine.take_report(report(unix + 0.1, process_start=unix - 0.5), NOW + 1.0, unix + 0.1)
    assert engine.take_report(report(unix + 0.2, process_start=unix + 9.0), NOW + 1.1, unix + 0.2)
