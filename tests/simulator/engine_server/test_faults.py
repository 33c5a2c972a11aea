"""Injected faults: the engine hangs, crawls or lies while /health responds 200, and recovers when healed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from simulator.engine_server import engine_runtime
from simulator.engine_server.faults import CRAWL_FACTOR, ModelClock, ReportedMetrics, rate_under
from tests.simulator.conftest import RunningEngine, StartEngine

TRUE = (
    b'vllm:num_requests_running{engine="0",model_name="m"} 3.0\n'
    b'vllm:num_requests_waiting{engine="0",model_name="m"} 1.0\n'
    b'vllm:generation_tokens_total{engine="0",model_name="m"} 100.0\n'
)


async def _fault(engine: RunningEngine, fault: str) -> None:
    async with engine.http.post(engine.url + "/fault", json={"fault": fault}) as answer:
        assert answer.status == 200


async def _complete(engine: RunningEngine) -> int:
    body = {"prompt": "x" * 400, "max_tokens": 2}
    async with engine.http.post(engine.url + "/v1/completions", json=body) as answer:
        await answer.read()
        return answer.status


@pytest.mark.parametrize("fault", ["hang", "lie", "idle", "sleep", "compile"])
async def test_a_hanging_engine_reports_good_health_and_resumes_when_healed(
    start_engine: StartEngine, fault: str
) -> None:
    engine = await start_engine(faults=True)
    await _fault(engine, fault)
    asked = asyncio.create_task(_complete(engine))
    while engine.server.runtime.load == 0:
        await asyncio.sleep(0.01)
    async with engine.http.get(engine.url + "/health") as answer:
        assert answer.status == 200
    assert not asked.done()
    await _fault(engine, "")
    assert await asked == 200


async def test_a_compiling_engine_continues_without_intervention(
    start_engine: StartEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_runtime, "COMPILE_S", 0.3)
    engine = await start_engine(faults=True)
    await _fault(engine, "compile")
    assert rate_under("compile") == 0.0
    assert await _complete(engine) == 200


async def test_a_busy_engine_answers_probes_late_and_requests_in_time(
    start_engine: StartEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_runtime, "BUSY_S", 60.0)
    engine = await start_engine(faults=True)
    await _fault(engine, "busy")
    probes = [asyncio.create_task(engine.http.get(engine.url + path)) for path in ("/health", "/load", "/metrics")]
    assert await _complete(engine) == 200
    assert not any(probe.done() for probe in probes)
    for probe in probes:
        probe.cancel()


async def test_an_engine_without_the_fault_flag_rejects_faults(engine: RunningEngine) -> None:
    async with engine.http.post(engine.url + "/fault", json={"fault": "hang"}) as answer:
        assert answer.status == 404


async def test_an_unknown_fault_is_rejected(start_engine: StartEngine) -> None:
    engine = await start_engine(faults=True)
    async with engine.http.post(engine.url + "/fault", json={"fault": "sulk"}) as answer:
        assert answer.status == 400


def test_metrics_follow_the_injected_fault() -> None:
    reported = ReportedMetrics()
    assert (reported.text(TRUE), reported.load(4)) == (TRUE, 4)
    reported.begin("idle")
    assert b"running{" in reported.text(TRUE)
    assert (b"} 3.0" in reported.text(TRUE), reported.load(4)) == (False, 0)
    reported.begin("garbage")
    assert reported.text(TRUE).count(b"} NaN") == 2
    reported.begin("sleep")
    assert reported.text(TRUE) == TRUE + b'vllm:engine_sleep_state{engine="0",sleep_state="awake"} 0.0\n'


def test_frozen_metrics_do_not_change() -> None:
    reported = ReportedMetrics()
    reported.begin("frozen")
    assert reported.text(TRUE) == TRUE
    assert reported.text(b"later") == TRUE
    reported.begin("")
    assert reported.text(b"later") == b"later"


def test_lying_counters_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    now: Any = iter([10.0, 12.0])
    monkeypatch.setattr("simulator.engine_server.faults.time.monotonic", lambda: next(now))
    reported = ReportedMetrics()
    reported.begin("lie")
    assert b"generation_tokens_total" in (said := reported.text(TRUE))
    assert b"} 900.0" in said


def test_time_stops_crawls_and_resumes_without_a_jump(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("simulator.engine_server.faults.time.monotonic", lambda: now[0])
    clock = ModelClock(2.0)
    now[0] = 5.0
    assert (clock.now(), clock.due_in(12.0)) == (10.0, 1.0)
    clock.run_at(rate_under("hang"))
    now[0] = 50.0
    assert (clock.now(), clock.due_in(12.0)) == (10.0, None)
    clock.run_at(rate_under("crawl"))
    now[0] = 60.0
    assert clock.now() == pytest.approx(10.0 + 20.0 / CRAWL_FACTOR)
    clock.run_at(rate_under(""))
    assert clock.due_in(clock.now() + 2.0) == pytest.approx(1.0)


async def test_another_template_changes_the_tokens_of_chats_and_no_others(start_engine: StartEngine) -> None:
    engine = await start_engine(faults=True)
    chat = {"messages": [{"role": "user", "content": "the same words"}], "max_tokens": 1}

    async def counted() -> tuple[list[int], int]:
        async with engine.http.post(engine.url + "/tokenize", json=chat) as answer:
            tokens = (await answer.json())["tokens"]
        async with engine.http.post(engine.url + "/v1/chat/completions", json=chat) as answer:
            return tokens, (await answer.json())["usage"]["prompt_tokens"]

    before, used_before = await counted()
    await _fault(engine, "template")
    after, used_after = await counted()
    assert after[-len(before) :] == before
    assert (len(before), len(after)) == (used_before, used_after)
    assert used_after > used_before
    assert await _complete(engine) == 200


async def test_blocks_of_no_request_take_the_memory_of_cached_ones(start_engine: StartEngine) -> None:
    engine = await start_engine(faults=True)
    body = {"prompt": list(range(4000)), "max_tokens": 1}

    async def cached() -> int:
        async with engine.http.post(engine.url + "/v1/completions", json=body) as answer:
            usage = (await answer.json())["usage"]
        return int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)

    assert await cached() == 0
    assert await cached() > 0
    await _fault(engine, "evict")
    assert await cached() == 0
    assert await cached() > 0
