"""The gateway's sample of the fleet, and the gauges derived from it.

When an engine becomes hot, and when it cools.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import msgspec
import pytest

from bench.live.loopback_ports import free_port
from gateway.contracts.engine_report import EngineReport, encode_report, load_topic
from gateway.contracts.fleet_sample import STATES
from gateway.reports.hotspot import HotspotDetector
from routing.policy.policy_document import RoutingPolicy
from routing.values.decision import Dispatched, Rejected
from routing.values.observation import FirstToken
from tests.gateway.decision_records import ended_record
from tests.gateway.fake_engine import fake_engine
from tests.gateway.live_gateway import engine_entry, live_gateway, request, snapshot
from tests.patience import until


async def test_samples_are_numbered_complete_and_in_a_stable_order(tmp_path: Path) -> None:
    async with fake_engine() as one:
        entries = [engine_entry(name, one.url) for name in ("b", "a", "c")]
        async with live_gateway(tmp_path, snapshot(entries, version=4)) as live:
            await until(lambda: live.bus.latest("fleet"))
            first = live.sample()
            assert [engine.engine_id for engine in first.engines] == ["a", "b", "c"]
            assert [pool.pool_id for pool in first.pools] == ["pool"]
            assert first.snapshot_version == 4
            assert {engine.state for engine in first.engines} <= set(STATES)
            await until(lambda: live.sample().seq > first.seq)


async def test_an_engine_has_its_reported_block_size(tmp_path: Path) -> None:
    async with fake_engine() as one, live_gateway(tmp_path, snapshot([engine_entry("a", one.url)])) as live:
        await until(lambda: live.bus.latest("fleet"))
        assert live.sample().engines[0].block_tokens is None
        report = EngineReport(engine_id="a", at=time.time(), reachable=True, healthy=True, reason="", block_size=32)
        live.bus.publish(load_topic("a"), encode_report(report))
        await until(lambda: live.sample().engines[0].block_tokens == 32)


async def test_the_sample_marks_a_pool_that_only_observes(tmp_path: Path) -> None:
    async with fake_engine() as one:
        routed = snapshot([engine_entry("a", one.url)])
        pools = tuple(msgspec.structs.replace(pool, mode="observe") for pool in routed.pools)
        for name, entry in (("routed", routed), ("observed", msgspec.structs.replace(routed, pools=pools))):
            async with live_gateway(tmp_path / name, entry) as live:
                await until(lambda live=live: live.bus.latest("fleet"))
                assert [pool.observes for pool in live.sample().pools] == [name == "observed"]


async def test_a_quarantined_engine_without_work_has_its_own_state(tmp_path: Path) -> None:
    async with fake_engine() as one:
        out = {"health": "quarantined", "health_reason": "by admin"}
        entries = [engine_entry("a", one.url), engine_entry("b", one.url, **out)]
        async with live_gateway(tmp_path, snapshot(entries)) as live:
            await until(lambda: live.bus.latest("fleet") and live.shown("b").state == "quarantined")
            assert live.shown("b").reason == "by admin"
            await until(lambda: live.shown("a").state == "serving")
            assert 'headway_engine_state{engine="b",state="quarantined"} 1.0' in live.gateway.metrics.render().decode()
        # Verdicts that would leave no engine are not followed: a quarantined one that serves all the same is degraded.
        async with live_gateway(tmp_path / "all", snapshot(entries[1:])) as live:
            await until(lambda: live.bus.latest("fleet") and live.shown("b").state == "degraded")


async def test_in_flight_work_shows_on_its_engine_and_in_the_gauges(tmp_path: Path) -> None:
    async with fake_engine() as one:
        entries = [engine_entry("a", one.url), engine_entry("b", one.url)]
        async with live_gateway(tmp_path, snapshot(entries)) as live:
            await live.pool.decide(request("r1", prompt_tokens=50_000), hold=False)
            await until(lambda: live.sample().pools[0].load_cv > 0.9)
            loads = {engine.engine_id: engine.in_flight_tokens for engine in live.sample().engines}
            assert sorted(loads.values()) == [0, 50_000]
            busy = max(loads, key=lambda engine_id: loads[engine_id])
            assert live.shown(busy).running == 1
            assert live.shown(busy).in_flight_s > 1.0
            text = live.gateway.metrics.render().decode()
            assert f'headway_in_flight_tokens{{engine="{busy}"}} 50000.0' in text
            assert f'headway_engine_state{{engine="{busy}",state="serving"}} 1.0' in text
            assert "headway_snapshot_version 1.0" in text


async def test_the_queue_counts_all_kinds_of_queued_requests(tmp_path: Path) -> None:
    async with fake_engine() as one, live_gateway(tmp_path, snapshot([engine_entry("a", one.url)])) as live:
        await live.pool.decide(request("r0", prompt_tokens=50_000), hold=True)
        waiting = [asyncio.create_task(live.pool.decide(request(f"w{n}"), hold=True)) for n in range(3)]
        await until(lambda: live.shown("a").bound == 3)
        assert 'headway_queued_requests{pool="pool"} 3.0' in live.gateway.metrics.render().decode()
        pool = live.sample().pools[0]
        assert (pool.bound, pool.unbound) == (3, 0)
        await until(lambda: (live.shown("a").oldest_bound_s or 0.0) > 0.3)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await until(lambda: live.shown("a").oldest_bound_s == 0.0)


async def test_a_dead_engine_is_starting_first_and_a_lost_one_shows_since_when(tmp_path: Path) -> None:
    async with live_gateway(tmp_path) as live:
        async with fake_engine() as one:
            never = engine_entry("never", f"http://127.0.0.1:{free_port()}")
            live.publish(snapshot([engine_entry("a", one.url), never]))
            await until(lambda: live.gateway.pools and live.engine("a").breaker.accepts)
            await until(lambda: live.bus.latest("fleet") and live.sample().engines and live.shown("a").state)
            await until(lambda: live.shown("never").state == "starting")
            assert live.shown("a").state == "serving"
            assert (live.shown("a").answered, live.shown("never").answered) == (True, False)
        died = time.time()
        live.report("a", reachable=False, healthy=False, reason="connection refused")
        await until(lambda: live.shown("a").state == "lost")
        lost = live.shown("a")
        assert lost.reason == "connection refused"
        assert lost.answered
        assert died - 1.0 <= lost.since <= time.time()
        seq = live.sample().seq
        await until(lambda: live.sample().seq > seq + 2)
        assert live.shown("a").since == lost.since


async def test_windowed_traffic_shows_in_the_pool(tmp_path: Path) -> None:
    async with fake_engine() as one, live_gateway(tmp_path, snapshot([engine_entry("a", one.url)])) as live:
        for number in range(10):
            live.pool.traffic.add(ended_record(time.monotonic(), 0.1 * number, cached=25, on_time=number < 8))
        await until(lambda: live.sample().pools[0].on_time_share == 0.8)
        pool = live.sample().pools[0]
        assert (pool.hit_share, pool.late, pool.failed, pool.rejected) == (0.25, 2, 0, 0)
        assert pool.ttft_p50_s == pytest.approx(0.4)
        assert (live.shown("a").prompt_tokens_total, live.shown("a").cached_tokens_total) == (1000, 250)


async def test_grants_waits_and_rejections_show_in_the_pool_and_as_counters(tmp_path: Path) -> None:
    policy = RoutingPolicy(queue_limit=1)
    async with fake_engine() as one:
        shot = snapshot([engine_entry("a", one.url)])
        (entry,) = shot.pools
        shot = msgspec.structs.replace(shot, pools=(msgspec.structs.replace(entry, policy=policy),))
        async with live_gateway(tmp_path, shot) as live:
            await until(lambda: live.bus.latest("fleet"))
            await live.pool.decide(request("r0", prompt_tokens=50_000), hold=True)
            waiting = asyncio.create_task(live.pool.decide(request("w0"), hold=True))
            await until(lambda: live.shown("a").bound == 1)
            assert isinstance(await live.pool.decide(request("w1"), hold=True), Rejected)
            live.pool.observe(FirstToken("r0"))
            assert isinstance(await waiting, Dispatched)
            await until(lambda: live.sample().pools[0].dispatched_waited_per_s)
            pool = live.sample().pools[0]
            assert (pool.dispatched_at_once_per_s or 0.0) > 0.0
            assert set(pool.rejections_per_s or ()) == {"queue_full"}
            assert (pool.queue_wait_p90_s or 0.0) > (pool.queue_wait_mean_s or 0.0) > 0.0
            text = live.gateway.metrics.render().decode()
            assert 'headway_dispatches_total{how="at_once",pool="pool"} 1.0' in text
            assert 'headway_dispatches_total{how="after_waiting",pool="pool"} 1.0' in text
            assert 'headway_migrations_total{pool="pool"} 0.0' in text


async def test_series_of_engines_that_left_are_removed(tmp_path: Path) -> None:
    async with fake_engine() as one, live_gateway(tmp_path, snapshot([engine_entry("gone", one.url)])) as live:
        await until(lambda: 'engine="gone"' in live.gateway.metrics.render().decode())
        live.publish(snapshot([engine_entry("a", one.url)], version=2))
        await until(lambda: 'headway_in_flight_tokens{engine="a"}' in live.gateway.metrics.render().decode())
        await until(lambda: 'headway_in_flight_tokens{engine="gone"}' not in live.gateway.metrics.render().decode())


def run(detector: HotspotDetector, load_s: float, *, start: float, seconds: float, median_s: float = 1.0) -> bool:
    hot = False
    for step in range(int(seconds * 2) + 1):
        hot = detector.update("e", load_s, median_s, 4.0, start + step / 2)
    return hot


def test_a_short_peak_is_not_hot() -> None:
    detector = HotspotDetector()
    assert not run(detector, 9.0, start=0.0, seconds=1.5)
    assert not run(detector, 1.0, start=2.0, seconds=0.5)
    assert not run(detector, 9.0, start=3.0, seconds=1.5)


def test_sustained_work_far_above_the_median_is_hot() -> None:
    assert run(HotspotDetector(), 9.0, start=0.0, seconds=2.0)


def test_high_work_on_all_engines_is_not_hot() -> None:
    assert not run(HotspotDetector(), 9.0, start=0.0, seconds=10.0, median_s=5.0)


def test_little_work_next_to_idle_engines_is_not_hot() -> None:
    assert not run(HotspotDetector(), 1.9, start=0.0, seconds=10.0, median_s=0.0)
    assert run(HotspotDetector(), 2.1, start=0.0, seconds=10.0, median_s=0.0)


def test_a_hot_engine_stays_hot_between_the_thresholds_and_cools_after_a_delay() -> None:
    detector = HotspotDetector()
    assert run(detector, 9.0, start=0.0, seconds=2.0)
    assert run(detector, 1.8, start=3.0, seconds=10.0)
    assert run(detector, 1.0, start=20.0, seconds=1.5)
    assert not run(detector, 1.0, start=22.0, seconds=2.0)


def test_a_forgotten_engine_starts_cold() -> None:
    detector = HotspotDetector()
    assert run(detector, 9.0, start=0.0, seconds=2.0)
    detector.forget("e")
    assert not detector.update("e", 9.0, 1.0, 4.0, 3.0)
