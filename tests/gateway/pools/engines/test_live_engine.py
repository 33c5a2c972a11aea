"""One engine: its reports, and which of them reveal a new process.

Reports of a prober that lost its lease are dropped.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator

import aiohttp
import pytest
import pytest_asyncio

from gateway.base.loop_lag import LoopLag
from gateway.contracts.engine_report import EngineReport
from gateway.pools.engines.engine_metrics import EngineMetrics, parse_engine_metrics
from gateway.pools.engines.engine_state import health_state
from gateway.pools.engines.health_probe import EngineUnreachableError
from gateway.pools.engines.live_engine import COUNTED_S, LiveEngine
from gateway.pools.engines.report_fence import FORGOTTEN_S, MAX_SHARDS, ReportFence
from tests.gateway.live_gateway import SETTINGS, engine_entry

NOW = time.monotonic()


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


async def test_facts_contain_what_the_router_needs(engine: LiveEngine) -> None:
    facts = engine.facts(by_dispatches=True, accepts=True)
    assert (facts.engine_id, facts.incarnation, facts.accepts, facts.speed, facts.trust) == ("a", 3, True, 2.0, 0.5)


async def test_without_an_event_endpoint_an_exact_index_is_blind(engine: LiveEngine) -> None:
    assert engine.facts(by_dispatches=False, accepts=True).trust == 0.0
    assert engine.index_trust(by_dispatches=False).grade == "blind"
    assert engine.index_trust(by_dispatches=True).grade == "degraded"


async def test_older_reports_are_ignored(engine: LiveEngine) -> None:
    unix = time.time()
    engine.take_report(report(unix, running=5), NOW, unix)
    engine.take_report(report(unix - 1.0, running=9), NOW, unix)
    assert engine.report is not None
    assert engine.report.running == 5


async def test_a_stale_report_does_not_affect_health(engine: LiveEngine) -> None:
    unix = time.time()
    engine.breaker.observe_probe(True, "", NOW)
    for count in range(20):
        engine.take_report(report(unix - 60.0 + count, reachable=False, healthy=False), NOW + count, unix)
    assert engine.breaker.accepts
    assert engine.report_age_s(NOW + 19.0) == pytest.approx(41.0)


async def test_an_unreachable_report_of_the_prober_only_triggers_the_gateways_own_probe(
    engine: LiveEngine,
) -> None:
    engine.breaker.observe_probe(True, "", NOW)
    engine._wake.clear()
    for count in range(20):
        engine.take_report(report(time.time(), reachable=False, healthy=False, reason="timed out"), NOW + count, 0.0)
    assert engine.breaker.accepts
    assert engine._wake.is_set()
    # The shown age counts answers: a frozen engine's failed probes are no reports of it.
    assert engine.answered_at is None
    engine.take_report(report(time.time()), NOW + 20.0, time.time())
    assert engine.answered_at == pytest.approx(NOW + 20.0, abs=1.0)


@pytest.mark.parametrize("answers", [True, False])
async def test_an_engine_that_answers_requests_is_not_silent_despite_failed_probes(
    engine: LiveEngine, monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    signs = 0

    async def probe() -> str:
        nonlocal signs
        signs += answers
        raise EngineUnreachableError("health timed out after 5 s", timed_out=True)

    engine.breaker.observe_probe(True, "", time.monotonic())
    monkeypatch.setattr(engine, "_signs", lambda: signs)
    monkeypatch.setattr(engine.adapter, "probe", probe)
    for _ in range(5):
        await engine._probe()
    assert engine.breaker.accepts == answers
    assert engine.late == ("health timed out after 5 s, but requests are answered" if answers else "")


async def test_only_recent_full_counters_show_progress(engine: LiveEngine) -> None:
    unix = time.time()
    assert engine.counted(NOW) is None
    engine.take_report(report(unix, prompt_tokens_total=5.0, generated_tokens_total=2.0), NOW, unix)
    assert engine.counted(NOW) is None, "a light report repeats what the last full one read"
    engine.take_report(report(unix, full=True, prompt_tokens_total=5.0, generated_tokens_total=2.0), NOW, unix)
    assert engine.counted(NOW + COUNTED_S) == 7.0
    assert engine.counted(NOW + COUNTED_S + 0.1) is None
    engine.take_report(report(unix, full=True, prompt_tokens_total=math.nan), NOW + 1.0, unix)
    assert engine.counted(NOW + 1.0) == 7.0


async def test_counters_are_read_only_when_requested(engine: LiveEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    async def probe() -> str:
        return ""

    async def full_metrics() -> EngineMetrics:
        return parse_engine_metrics(
            b'vllm:num_requests_running{engine="0"} 1\nvllm:num_requests_waiting{engine="0"} 0\n'
            b'vllm:prompt_tokens_total{engine="0"} 3\nvllm:generation_tokens_total{engine="0"} 4\n'
        )

    monkeypatch.setattr(engine.adapter, "probe", probe)
    monkeypatch.setattr(engine.adapter, "full_metrics", full_metrics)
    await engine._probe()
    assert engine.counted(time.monotonic()) is None
    engine.probe_now(counters=True)
    await engine._probe()
    assert engine.counted(time.monotonic()) == 7.0


@pytest.mark.parametrize(
    ("happens", "state", "reason"),
    [
        ("stall", "quarantined", "suspected: 1 stream"),
        ("hang", "lost", "the hang limit"),
        ("late probe", "degraded", "metrics are answered"),
        ("late report", "degraded", "metrics are answered"),
    ],
)
async def test_people_see_why_an_engine_gets_no_work_or_is_late(
    engine: LiveEngine, happens: str, state: str, reason: str
) -> None:
    late = "health timed out after 5 s, but metrics are answered"
    engine.breaker.observe_probe(True, "", NOW)
    if happens == "stall":
        reason = "suspected: 1 stream has produced nothing for 3.0 s, while other engines progressed"
        engine.breaker.record_stall(reason, NOW)
    elif happens == "hang":
        engine.breaker.record_hang("1 stream has produced nothing for 300 s, which is the hang limit", NOW)
    elif happens == "late probe":
        engine.late = late
    else:
        engine.take_report(report(time.time(), reason=late), NOW, time.time())
    seen = health_state(engine, NOW, accepts=engine.breaker.accepts)
    assert (seen[0], reason in seen[1]) == (state, True)


async def test_report_age_uses_the_monotonic_clock(engine: LiveEngine) -> None:
    assert engine.report_age_s(NOW) is None
    engine.take_report(report(500.0), NOW, 500.2)
    assert engine.report_age_s(NOW + 1.0) == pytest.approx(1.2)
    engine.take_report(report(600.0), NOW + 2.0, 599.0)
    assert engine.report_age_s(NOW + 2.0) == 0.0


async def test_a_restart_is_not_counted_again_by_its_process_start(engine: LiveEngine) -> None:
    unix = time.time()
    assert not engine.take_report(report(unix, process_start=unix - 50.0), NOW, unix)
    engine.new_incarnation(NOW + 1.0)
    assert engine.incarnated_since(NOW + 0.5)
    assert not engine.take_report(report(unix + 0.1, process_start=unix - 0.5), NOW + 1.0, unix + 0.1)
    assert engine.take_report(report(unix + 0.2, process_start=unix + 9.0), NOW + 1.1, unix + 0.2)


def fenced_report(shard: int, fence: int, at: float = 1.0) -> EngineReport:
    return EngineReport(engine_id="e", at=at, reachable=True, healthy=True, reason="", shard=shard, fence=fence)


def test_an_older_token_of_the_same_shard_is_dropped() -> None:
    fence = ReportFence()
    assert fence.admits(fenced_report(0, 3))
    assert fence.admits(fenced_report(0, 4))
    assert not fence.admits(fenced_report(0, 3))
    assert fence.admits(fenced_report(0, 4))


def test_tokens_of_different_shards_are_not_compared() -> None:
    fence = ReportFence()
    assert fence.admits(fenced_report(0, 90))
    assert fence.admits(fenced_report(1, 2))


def test_a_bounded_number_of_shards_is_remembered() -> None:
    fence = ReportFence()
    for shard in range(MAX_SHARDS + 10):
        assert fence.admits(fenced_report(shard, 5))
    assert not fence.admits(fenced_report(0, 4))
    assert fence.admits(fenced_report(MAX_SHARDS + 1, 4))


def test_a_long_gone_holder_does_not_block_a_new_database() -> None:
    fence = ReportFence()
    assert fence.admits(fenced_report(0, 90, at=100.0))
    assert not fence.admits(fenced_report(0, 1, at=100.0 + FORGOTTEN_S))
    assert fence.admits(fenced_report(0, 1, at=101.0 + FORGOTTEN_S))
    assert fence.admits(fenced_report(0, 1, at=102.0 + FORGOTTEN_S))
