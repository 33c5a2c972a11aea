"""The driver delivers dispatches to waiting requests, removes withdrawn requests, and enforces time limits."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.base.loop_lag import LoopLag
from gateway.base.settings import GatewaySettings
from gateway.pool.dispatch_feed import DispatchFeed
from gateway.pool.pool_router import PoolRouter
from gateway.pool.router_driver import RouterDriver
from gateway.traffic.queue_window import QueueWindow
from routing.ledger.fleet_view import EngineFacts
from routing.policy.policy_document import RoutingPolicy
from routing.router import Router
from routing.values.decision import Dispatched, Rejected
from routing.values.inference_request import InferenceRequest
from routing.values.observation import Completed, FirstToken
from tests.patience import PATIENCE_S

POLICY = RoutingPolicy(prefill_window_tokens=1000, lookahead_s=0.0, max_wait_s=0.2)
NONE: frozenset[str] = frozenset()


def driver(policy: RoutingPolicy = POLICY, engines: tuple[str, ...] = ("a",)) -> RouterDriver:
    router = Router("pool", policy, 1)
    feed = DispatchFeed(router, {}, GatewaySettings(), feeds=lambda _: False, refresh=lambda: None)
    prefetch: Any = SimpleNamespace(queued=lambda *_: None, left=lambda _: None)
    made = RouterDriver(PoolRouter(router, feed, QueueWindow(), LoopLag(lambda _: None), prefetch), 0.02)
    made.set_engines([EngineFacts(engine_id, 1, True) for engine_id in engines])
    return made


def request(name: str, prompt_tokens: int = 900) -> InferenceRequest:
    return InferenceRequest(name, (), prompt_tokens, 16, time.monotonic(), 5.0)


async def test_a_free_engine_is_granted_immediately() -> None:
    outcome = await driver().place(request("r"), hold=True, excluded=NONE)
    assert isinstance(outcome, Dispatched)
    assert outcome.decision.engine_id == "a"


async def test_a_queued_request_is_granted_when_the_engine_becomes_free() -> None:
    driven = driver()
    await driven.place(request("r1"), hold=True, excluded=NONE)
    second = asyncio.create_task(driven.place(request("r2"), hold=True, excluded=NONE))
    await asyncio.sleep(0)
    assert not second.done()
    driven.observe(FirstToken("r1"))
    outcome = await second
    assert isinstance(outcome, Dispatched)
    driven.stop()


async def test_a_report_of_free_capacity_grants_a_waiting_request() -> None:
    driven = driver()
    await driven.place(request("r1"), hold=True, excluded=NONE)
    second = asyncio.create_task(driven.place(request("r2"), hold=True, excluded=NONE))
    await asyncio.sleep(0)
    driven.report("a", 0, 100)
    driven.observe(FirstToken("r1"))
    await asyncio.sleep(0)
    assert not second.done()
    driven.report("a", 0, 5000)
    assert isinstance(await second, Dispatched)
    driven.stop()


async def test_without_hold_nothing_waits() -> None:
    driven = driver()
    for number in range(5):
        outcome = await driven.place(request(f"r{number}"), hold=False, excluded=NONE)
        assert isinstance(outcome, Dispatched)
    driven.stop()


async def test_cancelling_withdraws_the_queued_request() -> None:
    driven = driver()
    await driven.place(request("r1"), hold=True, excluded=NONE)
    waiting = asyncio.create_task(driven.place(request("r2"), hold=True, excluded=NONE))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert [load.bound for load in driven.router.router.loads(time.monotonic())] == [0]
    driven.router.router.check()
    driven.stop()


async def test_cancelling_at_the_moment_of_the_grant_releases_the_reservation() -> None:
    driven = driver()
    await driven.place(request("r1"), hold=True, excluded=NONE)
    waiting = asyncio.create_task(driven.place(request("r2"), hold=True, excluded=NONE))
    await asyncio.sleep(0)
    driven.observe(Completed("r1"))
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert [load.running for load in driven.router.router.loads(time.monotonic())] == [0]
    driven.stop()


async def test_a_timer_rejects_a_queued_request_that_waits_too_long() -> None:
    driven = driver()
    await driven.place(request("r1", 100_000), hold=True, excluded=NONE)
    async with asyncio.timeout(PATIENCE_S):
        outcome = await driven.place(request("r2"), hold=True, excluded=NONE)
    assert outcome == Rejected("r2", "wait_expired", outcome.retry_after_s)  # type: ignore[union-attr]
    driven.stop()


async def test_queued_requests_move_to_another_engine_when_theirs_stops_accepting() -> None:
    driven = driver(engines=("a", "b"))
    for number in range(2):
        await driven.place(request(f"r{number}"), hold=True, excluded=NONE)
    waiting = asyncio.create_task(driven.place(request("late"), hold=True, excluded=NONE))
    await asyncio.sleep(0)
    loads = {load.engine_id: load for load in driven.router.router.loads(time.monotonic())}
    bound = next(engine_id for engine_id, load in loads.items() if load.bound)
    other = "b" if bound == "a" else "a"
    driven.set_engines([EngineFacts("a", 1, other == "a"), EngineFacts("b", 1, other == "b")])
    driven.observe(Completed("r0"))
    driven.observe(Completed("r1"))
    outcome = await waiting
    assert isinstance(outcome, Dispatched)
    assert outcome.decision.engine_id == other
    driven.stop()


async def test_stopping_rejects_waiting_requests() -> None:
    driven = driver(engines=())
    waiting = asyncio.create_task(driven.place(request("r"), hold=True, excluded=NONE))
    await asyncio.sleep(0)
    driven.stop()
    assert isinstance(await waiting, Rejected)


async def test_an_idle_driver_does_not_wake_up() -> None:
    driven = driver()
    await driven.place(request("r"), hold=True, excluded=NONE)
    driven.observe(Completed("r"))
    ticks = 0
    tick = driven.router.router.tick

    def count(now: float) -> list[object]:
        nonlocal ticks
        ticks += 1
        return list(tick(now))

    driven.router.router.tick = count  # type: ignore[method-assign, assignment]
    await asyncio.sleep(0.2)
    assert ticks <= 1
    driven.stop()
