"""Drives one pool's decision chain in real time: passes outcomes to waiting requests, and runs it at its deadlines."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

from gateway.pools.pool.pool_router import PoolRouter
from routing.chain.decider import ChainLink, Decider
from routing.ledger.fleet_view import EngineFacts
from routing.policy.policy_document import RoutingPolicy
from routing.rebalancing_overrides import relieve
from routing.values.decision import ChainOutcome, Dispatched, Elsewhere, Outcome, Queued, Rejected, id_of
from routing.values.inference_request import InferenceRequest
from routing.values.observation import Failed, ForwardFailed, Observation

_MIN_WAKE_S = 0.001
Placed = Dispatched | Rejected | Elsewhere
"""An outcome that ends the wait of a request."""


class RouterDriver:
    """The event loop around one chain. Call it only on the loop's thread.

    Mutable: the links before the router, the futures of waiting requests, and the timer.
    """

    def __init__(self, router: PoolRouter, tick_s: float) -> None:
        self.router = router
        self.chain: Decider = router
        self.after_call: Callable[[], None] = lambda: None
        """Called after each call of the chain, to send its messages."""
        self._links: list[ChainLink[Any]] = []
        self._tick_s = tick_s
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[str, asyncio.Future[Placed]] = {}
        self.held: dict[str, InferenceRequest] = {}
        """Requests that wait here, by id. Other threads may copy it."""
        self._timer: asyncio.TimerHandle | None = None

    def put_before(self, link: ChainLink[Any]) -> None:
        """Let requests pass through this link first."""
        self._links.append(link)
        self.chain = link

    async def place(self, request: InferenceRequest, *, hold: bool, excluded: frozenset[str] = frozenset()) -> Placed:
        """Return when the request is dispatched, rejected, or sent to another region. Cancellation withdraws it.

        With `hold` it can wait in the queue; without it an engine is chosen immediately. Raise ValueError for the id of
        a running request.
        """
        now = time.monotonic()
        outcome = self.chain.place(request, now, hold=hold, excluded=excluded)
        self._called(now)
        if not isinstance(outcome, Queued):
            return outcome
        self.held[request.request_id] = request
        try:
            return await self._wait(request.request_id)
        finally:
            self.held.pop(request.request_id, None)

    async def forward_failed(self, request_id: str) -> Placed:
        """Return the next outcome of a request that its region did not take, as `place` does."""
        now = time.monotonic()
        own, *others = self.chain.observe(ForwardFailed(request_id), now)
        self._deliver(others, now)
        return await self._wait(request_id) if isinstance(own, Queued) else own

    async def _wait(self, request_id: str) -> Placed:
        future: asyncio.Future[Placed] = self._loop.create_future()
        self._waiting[request_id] = future
        self._arm(time.monotonic())
        try:
            return await future
        except asyncio.CancelledError:
            # It may have been dispatched in this very turn.
            self.observe(Failed(request_id))
            raise
        finally:
            self._waiting.pop(request_id, None)

    def take_observed(self, request: InferenceRequest, engine_id: str) -> Dispatched | None:
        """Account for a request that others have sent to the engine. Return None if the engine accepts no work."""
        now = time.monotonic()
        dispatched = self.router.take_observed(request, engine_id, now)
        self._called(now)
        return dispatched

    def observe(self, observation: Observation) -> None:
        """Report an event of a request to the chain, and deliver the outcomes. Unknown ids are ignored."""
        now = time.monotonic()
        outcomes = self.chain.observe(observation, now)
        if outcomes:
            self._deliver(outcomes, now)
        else:
            self._called(now)

    def set_engines(self, facts: Sequence[EngineFacts]) -> None:
        """Set the router's engines, and deliver the outcomes."""
        now = time.monotonic()
        self._followed(self.router.router.set_engines(facts, now), now)

    def set_policy(self, policy: RoutingPolicy, version: int) -> None:
        """Set the router's policy, and deliver the outcomes; raise the router's error if the policy cannot run."""
        now = time.monotonic()
        self._followed(self.router.router.set_policy(policy, version, now), now)

    def report(self, engine_id: str, pending: int, room_tokens: int | None) -> None:
        """Set an engine's pending work and free room in the router, and deliver the outcomes."""
        now = time.monotonic()
        self._followed(self.router.router.report(engine_id, pending, now, room_tokens), now)

    def relieve(self, engine_id: str, at_most: int) -> None:
        """Move queued requests off an engine, and deliver the outcomes."""
        now = time.monotonic()
        self._followed(relieve(self.router.router, engine_id, at_most, now), now)

    def stop(self) -> None:
        """Cancel the timer and reject the waiting requests."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.reject_waiting("no_engine")

    def reject_waiting(self, code: str) -> None:
        """Reject the waiting requests."""
        # The table does not change meanwhile: set_result only schedules the callbacks.
        for request_id, future in self._waiting.items():
            if not future.done():
                future.set_result(Rejected(request_id, code, 1.0))

    def _followed(self, outcomes: list[Outcome], now: float) -> None:
        """Deliver outcomes of the router through all links."""
        self.deliver(self.router.followed(outcomes), now)

    def deliver(self, outcomes: Sequence[ChainOutcome], now: float, *, above: ChainLink[Any] | None = None) -> None:
        """Deliver outcomes through the links above this one; None: through all links above the router."""
        links = self._links if above is None else self._links[self._links.index(above) + 1 :]
        for link in links:
            outcomes = link.followed(outcomes, now)
        self._deliver(outcomes, now)

    def _deliver(self, outcomes: Sequence[ChainOutcome], now: float) -> None:
        """Pass outcomes to their waiters. A dispatch without a waiter is released again."""
        pending = list(outcomes)
        while pending:
            outcome = pending.pop(0)
            if isinstance(outcome, Queued):
                continue
            request_id = id_of(outcome)
            # A waiter that was cancelled in this turn is done, but still in the table.
            future = self._waiting.get(request_id)
            if future is not None and not future.done():
                future.set_result(outcome)
            elif not isinstance(outcome, Rejected):
                pending += self.chain.observe(Failed(request_id), now)
        self._called(now)

    def _called(self, now: float) -> None:
        if self._links:
            self.after_call()
        # Peers' requests wait in the router, too, and have no future here.
        if self._timer is None or self.router.queued:
            self._arm(now)

    def _arm(self, now: float) -> None:
        """Schedule the chain's next run at its next deadline."""
        timer, waits = self._timer, self.router.queued
        if timer is not None and (not waits or timer.when() <= self._loop.time() + self._tick_s):
            return
        wake = self.chain.next_wake(now)
        if wake is None:
            return
        pause_s = max(_MIN_WAKE_S, wake - now)
        if waits:
            pause_s = min(pause_s, self._tick_s)
        if timer is not None:
            timer.cancel()
        self._timer = self._loop.call_later(pause_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now = time.monotonic()
        try:
            self._deliver(self.chain.tick(now), now)
        # Armed even after an error: without the timer, the waiting requests would wait for ever.
        finally:
            self._arm(now)
