"""A gateway whose event loop stalls blames no engine, rejects requests that it cannot serve, and recovers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from gateway.app import AppSettings
from gateway.base.loop_lag import SUSTAINED_LAG_S, LoopLag
from gateway.contracts.outcomes import UNREAD, OutcomeCounts
from gateway.pools.engines.breaker import CLOSED, CONNECT
from gateway.proxy.attempt import RelaySettings
from routing.policy.policy_document import RoutingPolicy
from routing.values.decision import Rejected
from tests.gateway.fake_engine import FakeEngine, fake_engine
from tests.gateway.live_gateway import SETTINGS, engine_entry, live_gateway, request, snapshot
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import CHAT, MODEL, served
from tests.patience import until

ROUTE = "/api/v1/route"
MESSAGES = [{"role": "user", "content": "x"}]
QUESTION = {"model": MODEL, "block_hashes": [1]}


def make_late(lag: LoopLag) -> None:
    """Make the loop appear blocked for three seconds."""
    now = time.monotonic()
    lag.tick(now - 3.0)
    lag.tick(now)


@asynccontextmanager
async def starved_loop() -> AsyncIterator[None]:
    """Block this loop repeatedly, as on an overloaded machine."""

    async def hold_up() -> None:
        while True:
            time.sleep(2 * SUSTAINED_LAG_S)
            await asyncio.sleep(0)

    task = asyncio.create_task(hold_up())
    try:
        yield
    finally:
        task.cancel()


def slow_health(engine: FakeEngine, seconds: float) -> None:
    """Let each health probe of this engine block the loop that it shares with the gateway."""

    def answer() -> web.StreamResponse:
        time.sleep(seconds)
        return web.Response()

    engine.answers["/health"] = answer


async def test_a_probe_that_times_out_while_the_loop_is_blocked_blames_no_engine(tmp_path: Path) -> None:
    async with fake_engine() as one, live_gateway(tmp_path, snapshot([engine_entry("a", one.url)])) as live:
        breaker = live.engine("a").breaker
        await until(lambda: breaker.state == CLOSED)
        slow_health(one, 1.5 * SETTINGS.limits.probe_timeout_s)
        breaker.record_failure(CONNECT, time.monotonic())
        asked = len(one.asked)
        await until(lambda: len(one.asked) >= asked + 4)
        assert (breaker.state, breaker.trips) == (CLOSED, 0)


@pytest.mark.parametrize("roles", [(), ("prefill", "decode")], ids=["one engine", "a pair"])
async def test_an_attempt_that_times_out_while_the_loop_is_blocked_blames_no_engine(
    roles: tuple[str, ...], tmp_path: Path
) -> None:
    settings = AppSettings(relay=RelaySettings(answer_s=0.5, hang_s=0.5))
    async with ScriptedEngine() as first, ScriptedEngine() as second:
        urls = [first.url, second.url][: max(1, len(roles))]
        async with served(urls, tmp_path, settings=settings, roles=roles) as gateway:
            engines = gateway.pool.engines
            await until(lambda: all(gateway.pool.accepts(item) for item in engines))
            first.stall = True
            body = {"model": MODEL, "prompt": [1, 2, 3], "max_tokens": 1}
            asking = asyncio.create_task(gateway.post("/v1/completions", body))
            await first.received.wait()
            time.sleep(1.0)
            await until(lambda: asking.done() or len(first.bodies) == 2)
            assert not any(engine.breaker.suspect for engine in engines.values())
            asking.cancel()


async def test_requests_are_rejected_during_sustained_lag_and_served_again_after_it(tmp_path: Path) -> None:
    async with fake_engine() as one, served([one.url], tmp_path) as gateway:
        await until(lambda: gateway.pool.accepts("engine-0"))
        async with starved_loop():
            await until(lambda: gateway.gateway.lag.retry_after_s(time.monotonic()))
            status, answer, headers = await gateway.post(ROUTE, QUESTION)
            assert (status, answer["error"]["code"]) == (429, "gateway_late")
            assert int(headers["retry-after"]) >= 1
            for path, body in ((ROUTE, {**QUESTION, "wait": False}), (CHAT, {"model": MODEL, "messages": MESSAGES})):
                status, answer, _ = await gateway.post(path, body)
                assert (status, answer["error"]["code"]) == (429, "gateway_late")
        assert not any(path == "/tokenize" for _, path, _, _ in one.asked)
        await gateway.gateway.requests.flush()
        # Nothing is known of their prompts, and what happened is recorded anyway.
        assert gateway.gateway.metrics.traffic_rows.value("recorded") == 3
        counted = gateway.pool.outcomes.outcomes()
        assert counted.lengths == {UNREAD: OutcomeCounts(rejected=3)}
        assert (list(counted.tenants), list(counted.keys)) == (["tenant-a"], ["ka"])
        text = await gateway.metrics()
        assert 'headway_rejections_total{code="gateway_late",pool="pool"} 3.0' in text
        assert "headway_gateway_late 1.0" in text
        assert gateway.pool.engines["engine-0"].breaker.trips == 0
        await until(lambda: not gateway.gateway.lag.late)
        assert (await gateway.post(ROUTE, QUESTION))[0] == 200


async def test_a_late_gateway_holds_no_more_than_its_engines_can_start_in_time(tmp_path: Path) -> None:
    policy = RoutingPolicy(prefill_window_tokens=1, lookahead_s=0.0)
    async with (
        fake_engine() as one,
        live_gateway(tmp_path, snapshot([engine_entry("a", one.url)], policy=policy)) as live,
    ):
        await until(lambda: live.pool.accepts("a"))
        await live.pool.decide(request("running", prompt_tokens=100_000), hold=True)
        held = [asyncio.create_task(live.pool.decide(request("punctual", ttft_slo_s=1.0), hold=True))]
        await until(lambda: len(live.pool.router.waiting) == 1)
        make_late(live.gateway.lag)
        rejected = await live.pool.decide(request("hurried", ttft_slo_s=1.0), hold=True)
        assert isinstance(rejected, Rejected)
        assert (rejected.code, rejected.retry_after_s >= 1.0) == ("gateway_late", True)
        held.append(asyncio.create_task(live.pool.decide(request("patient", ttft_slo_s=1000.0), hold=True)))
        await until(lambda: len(live.pool.router.waiting) == 2)
        for item in held:
            item.cancel()


async def test_the_sample_and_the_metrics_show_a_late_gateway(tmp_path: Path) -> None:
    async with fake_engine() as one, live_gateway(tmp_path, snapshot([engine_entry("a", one.url)])) as live:
        await until(lambda: live.bus.latest("fleet"))
        assert live.sample().lateness is None
        make_late(live.gateway.lag)
        await until(lambda: live.sample().lateness)
        lateness = live.sample().lateness
        assert lateness is not None
        assert (lateness.lapses, lateness.rejects) == (1, False)
        assert 2.0 < lateness.away_s < 4.0
        assert abs(lateness.since - (time.time() - 3.0)) < 30.0
        text = live.gateway.metrics.render().decode()
        assert "headway_gateway_late 1.0" in text
        assert 'headway_loop_lag_seconds_bucket{le="+Inf"}' in text


async def test_the_record_separates_gateway_time_from_engine_time(tmp_path: Path) -> None:
    async with fake_engine() as one, served([one.url], tmp_path) as gateway:
        await until(lambda: gateway.pool.accepts("engine-0"))
        keys = gateway.pool.seed

        def slow_seed(*named: str) -> int:
            time.sleep(0.3)
            return int(keys(*named))

        gateway.pool.seed = slow_seed
        status, answer, _ = await gateway.post(ROUTE, {"model": MODEL, "token_ids": list(range(64))})
        assert status == 200
        record = gateway.app.recent.get(answer["decision_id"])
        assert record is not None
        assert record.asked_s is not None
        assert 0.3 <= record.asked_s - record.arrived_s <= record.decision.decided_s - record.arrived_s
