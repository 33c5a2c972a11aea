"""The prober: light and full reads, verdicts that persist, isolation between engines, and cost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest_asyncio
from aiohttp import web

from bench.live.loopback_ports import free_port
from gateway.bus.bus import InProcessBus
from gateway.contracts.engine_report import EngineReport, decode_report, load_topic
from gateway.contracts.snapshot import EngineEntry
from gateway.pools.engines.prober import probe_engines
from tests.gateway.fake_engine import FakeEngine, fake_engine
from tests.patience import PATIENCE_S, until


class Probing:
    """A running prober and its reports."""

    def __init__(self) -> None:
        self.bus = InProcessBus()
        self.targets: list[EngineEntry] = []
        self.stop = asyncio.Event()
        self.reports: dict[str, list[EngineReport]] = {}
        self.bus.subscribe("load/", self._receive)
        self.task = asyncio.create_task(
            probe_engines(
                lambda: self.targets, self.bus, self.stop, light_interval_s=0.02, full_interval_s=0.1, timeout_s=0.3
            )
        )

    def _receive(self, _topic: str, value: bytes) -> None:
        report = decode_report(value)
        self.reports.setdefault(report.engine_id, []).append(report)

    def add(self, engine_id: str, url: str) -> None:
        self.targets = [*self.targets, EngineEntry(engine_id=engine_id, name=engine_id, pool_id="p", url=url)]

    def last(self, engine_id: str) -> EngineReport:
        return self.reports[engine_id][-1]


@pytest_asyncio.fixture
async def probing() -> AsyncIterator[Probing]:
    running = Probing()
    yield running
    running.stop.set()
    async with asyncio.timeout(PATIENCE_S):
        await running.task


@pytest_asyncio.fixture
async def engine() -> AsyncIterator[FakeEngine]:
    async with fake_engine() as running:
        yield running


async def test_light_and_full_reports_are_published(probing: Probing, engine: FakeEngine) -> None:
    probing.add("a", engine.url)
    # On a busy machine full reads may be due one after another; both kinds come in the end.
    await until(lambda: {report.full for report in probing.reports.get("a", [])} == {True, False})
    full = next(report for report in probing.reports["a"] if report.full)
    light = next(report for report in probing.reports["a"] if not report.full)
    assert full.healthy
    assert (full.running, full.waiting, full.process_start, full.block_size) == (3, 2, 1000.5, 32)
    assert (light.running, light.waiting, light.kv_usage) == (7, None, 0.25)
    assert probing.bus.latest(load_topic("a")) is not None


async def test_the_verdict_of_a_full_read_holds_until_the_next(probing: Probing, engine: FakeEngine) -> None:
    engine.set("/health", 503, b"")
    probing.add("a", engine.url)
    await until(lambda: len(probing.reports.get("a", [])) >= 4)
    assert all(not report.healthy and report.reachable for report in probing.reports["a"])
    assert probing.last("a").reason == "health answered 503"
    assert not probing.last("a").serves
    engine.set("/health", 200, b"")
    await until(lambda: probing.last("a").healthy)


async def test_malformed_metrics_mark_only_their_engine(probing: Probing, engine: FakeEngine) -> None:
    async with fake_engine() as garbage:
        garbage.set("/metrics", 200, b"vllm:num_requests_running NaN\n", content_type="text/plain")
        probing.add("bad", garbage.url)
        probing.add("good", engine.url)
        await until(lambda: len(probing.reports.get("bad", [])) >= 3 and len(probing.reports.get("good", [])) >= 3)
        assert probing.last("bad").reason.startswith("metrics are unreadable: ")
        assert probing.last("bad").serves
        assert not probing.last("bad").healthy
        assert all(report.healthy for report in probing.reports["good"])


async def test_a_dead_and_a_hanging_engine_do_not_slow_others(probing: Probing, engine: FakeEngine) -> None:
    async with fake_engine() as hanging:
        hanging.hang = True
        probing.add("dead", f"http://127.0.0.1:{free_port()}")
        probing.add("hanging", hanging.url)
        probing.add("good", engine.url)
        await until(lambda: probing.reports.get("hanging") and len(probing.reports.get("good", [])) >= 8)
        assert probing.last("dead").reason == "connection refused"
        assert not probing.last("dead").reachable
        assert "timed out" in probing.last("hanging").reason
        assert all(report.healthy for report in probing.reports["good"])


async def test_an_engine_with_late_health_serves_and_the_report_states_it(probing: Probing, engine: FakeEngine) -> None:
    engine.hangs_at = "/health"
    probing.add("a", engine.url)
    await until(lambda: any(report.full for report in probing.reports.get("a", [])))
    assert all(report.serves for report in probing.reports["a"])
    assert probing.last("a").reason == "health timed out after 0.3 s, but metrics are answered"


async def test_a_late_light_read_is_not_silence(probing: Probing, engine: FakeEngine) -> None:
    engine.hangs_at = "/load"
    probing.add("a", engine.url)
    await until(lambda: len(probing.reports.get("a", [])) >= 3)
    assert all(report.serves for report in probing.reports["a"])


async def test_engines_can_be_added_and_removed_at_runtime(probing: Probing, engine: FakeEngine) -> None:
    probing.add("a", engine.url)
    await until(lambda: "a" in probing.reports)
    probing.targets = []
    await asyncio.sleep(1.2)
    count = len(probing.reports["a"])
    await asyncio.sleep(0.2)
    assert len(probing.reports["a"]) == count
    probing.add("a", engine.url)
    await until(lambda: len(probing.reports["a"]) > count)


async def test_a_report_carries_its_read_time(probing: Probing, engine: FakeEngine) -> None:
    before = time.time()
    probing.add("a", engine.url)
    await until(lambda: probing.reports.get("a"))
    assert before <= probing.last("a").at <= time.time()


async def test_a_read_that_times_out_during_a_loop_lapse_is_not_reported(probing: Probing, engine: FakeEngine) -> None:
    probing.add("a", engine.url)
    await until(lambda: "a" in probing.reports)

    def answer_late() -> web.StreamResponse:
        time.sleep(0.5)
        return web.Response(body=b'{"server_load":7}')

    engine.answers["/load"] = engine.answers["/health"] = answer_late
    asked = len(engine.asked)
    await until(lambda: len(engine.asked) >= asked + 6)
    assert all(report.serves for report in probing.reports["a"])
