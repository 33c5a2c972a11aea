"""The driver delivers dispatches to waiting requests, removes withdrawn requests, and enforces time limits.

Blocks that dispatches leave at engines enter the index; long prompts do so over several loop iterations.

Block keys of requests in progress.
"""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.base.loop_lag import LoopLag
from gateway.base.settings import GatewaySettings
from gateway.pools.pool.dispatch_feed import Dispatch, DispatchedKeys, DispatchFeed
from gateway.pools.pool.pool_router import PoolRouter
from gateway.pools.pool.router_driver import RouterDriver
from gateway.pools.traffic.queue_window import QueueWindow
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
    moves: Any = SimpleNamespace(queued=lambda *_: None, left=lambda _: None, dispatched=lambda *_: None)
    made = RouterDriver(PoolRouter(router, feed, QueueWindow(), LoopLag(lambda _: None), moves), 0.02)
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


LONG = 20_000


class Fed:
    """A feed whose router records the stored blocks in call order."""

    def __init__(self, *, feeds: bool = True, guessed: bool = False) -> None:
        self.stored: list[int] = []
        self.ends: list[int] = []
        self.engine = SimpleNamespace(incarnation="one", intake=None)
        router: Any = SimpleNamespace(
            blocks_stored=lambda _, keys: self.stored.extend(reversed(keys)),
            index=SimpleNamespace(drop=lambda _: None),
            fleet=SimpleNamespace(keep_tail=lambda _, keys: self.ends.append(keys[-1])),
        )
        engines: Any = {"e": self.engine}
        self.feed = DispatchFeed(router, engines, GatewaySettings(), feeds=lambda _: feeds, refresh=lambda: None)
        self.feed.feeds_any = feeds
        decision: Any = SimpleNamespace(engine_id="e", incarnation="one", hit_tokens=0)
        request: Any = SimpleNamespace(
            request_id="r", keys=tuple(range(LONG)), tenant_id="t", guessed=guessed, proves_salts=False
        )
        self.feed.dispatched(decision, request)


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_long_prompt_is_indexed_over_several_loop_iterations_leaf_first() -> None:
    fed = Fed()
    fed.feed.observed(FirstToken("r"))
    assert 0 < len(fed.stored) < LONG
    await turns()
    assert fed.stored == list(reversed(range(LONG)))
    assert fed.ends == [LONG - 1]


async def test_indexing_stops_after_a_clear_or_an_engine_restart() -> None:
    cleared, restarted = Fed(), Fed()
    for fed in (cleared, restarted):
        fed.feed.observed(FirstToken("r"))
    before = len(cleared.stored)
    cleared.feed.clear()
    restarted.engine.incarnation = "two"
    await turns()
    assert len(cleared.stored) == len(restarted.stored) == before


async def test_if_events_feed_the_index_only_guessed_keys_are_added() -> None:
    exact, guessed = Fed(feeds=False), Fed(feeds=False, guessed=True)
    for fed in (exact, guessed):
        fed.feed.observed(FirstToken("r"))
    await turns()
    assert exact.stored == []
    assert sorted(guessed.stored) == list(range(LONG))


def test_a_dispatch_can_be_taken_once() -> None:
    dispatched = DispatchedKeys(10)
    dispatched.add("r", Dispatch("e", 1, (1, 2)))
    assert dispatched.take("r") == Dispatch("e", 1, (1, 2))
    assert dispatched.take("r") is None


def test_the_oldest_are_evicted_at_the_limit() -> None:
    dispatched = DispatchedKeys(3)
    for number in range(5):
        dispatched.add(str(number), Dispatch("e", 1, ()))
    assert len(dispatched) == 3
    assert dispatched.take("1") is None
    assert dispatched.take("2") is not None
