"""Drives one Router in real time: passes dispatches to waiting requests, and runs it at its next deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from gateway.base.loop_lag import LoopLag
from gateway.kv_moves.queue_prefetch import QueuePrefetch
from gateway.pool.dispatch_feed import DispatchFeed
from gateway.pool.overload import queue_rejection
from gateway.traffic.queue_window import QueueWindow
from routing.ledger.fleet_view import EngineFacts
from routing.policy.policy_document import RoutingPolicy
from routing.rebalancing_overrides import relieve
from routing.router import Router
from routing.values.decision import Dispatched, Outcome, Queued, Rejected
from routing.values.inference_request import InferenceRequest
from routing.values.observation import Failed, FirstToken, Observation

_MIN_WAKE_S = 0.001


class RouterDriver:
    """The event loop around one router. Call it only on the loop's thread.

    Mutable: the futures of waiting requests, and the timer.
    """

    def __init__(self, router: Router, tick_s: float, *, feed: DispatchFeed, queue: QueueWindow, lag: LoopLag) -> None:
        """`feed` and `queue` receive each dispatch. While `lag` is sustained, late requests are rejected."""
        self.router = router
        self._tick_s = tick_s
        self._feed = feed
        self._queue = queue
        self._lag = lag
        self.prefetch: QueuePrefetch | None = None
        """Receives each wait of a request."""
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[str, asyncio.Future[Dispatched | Rejected]] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def place(
        self, request: InferenceRequest, *, hold: bool, excluded: frozenset[str] = frozenset(), salted: bool = False
    ) -> Dispatched | Rejected:
        """Return when the request is dispatched to an engine or rejected. Cancellation withdraws it.

        With `hold` it can wait in the queue; without it an engine is chosen immediately. Raise ValueError for the id of
        a running request.
        """
        outcome = self.begin(request, hold=hold, excluded=excluded, salted=salted)
        if not isinstance(outcome, asyncio.Future):
            return outcome
        try:
            return await outcome
        except asyncio.CancelledError:
            # It may have been dispatched in this very turn.
            self.observe(Failed(request.request_id))
            raise

    def begin(
        self, request: InferenceRequest, *, hold: bool, excluded: frozenset[str] = frozenset(), salted: bool = False
    ) -> Dispatched | Rejected | asyncio.Future[Dispatched | Rejected]:
        """Ask the router as `place` does. Return a future if the request is queued; its cancellation withdraws the
        request.
        """
        if hold and not excluded and (late := queue_rejection(self._lag, self.router, request)):
            return late
        now = time.monotonic()
        outcome = self.router.place(request, now, hold=hold, excluded=excluded)
        if not isinstance(outcome, Queued):
            self._arm(now)
            return self._noted(outcome, request, salted)
        future: asyncio.Future[Dispatched | Rejected] = self._loop.create_future()
        future.add_done_callback(lambda done: self._left(request, salted, done))
        self._waiting[request.request_id] = future
        self._arm(now)
        if self.prefetch is not None:
            self.prefetch.queued(request, outcome, now)
        return future

    def _left(self, request: InferenceRequest, salted: bool, done: asyncio.Future[Dispatched | Rejected]) -> None:
        """Complete a queued request that is dispatched, rejected or withdrawn."""
        self._waiting.pop(request.request_id, None)
        if self.prefetch is not None:
            self.prefetch.left(request.request_id)
        if done.cancelled():
            self.observe(Failed(request.request_id))
        else:
            self._noted(done.result(), request, salted)

    def _noted(self, outcome: Dispatched | Rejected, request: InferenceRequest, salted: bool) -> Dispatched | Rejected:
        if isinstance(outcome, Dispatched):
            self._queue.dispatched(outcome.decision.queued_s)
            self._feed.dispatched(outcome.decision, request, salted)
        return outcome

    def place_at_once(self, request: InferenceRequest, salted: bool = False) -> Dispatched | Rejected:
        """Return an engine for a request that does not wait; raise ValueError for the id of a running request."""
        now = time.monotonic()
        outcome = self.router.place(request, now, hold=False)
        if isinstance(outcome, Queued):
            raise RuntimeError("a placement without hold has waited")
        self._arm(now)
        return self._noted(outcome, request, salted)

    def take_observed(self, request: InferenceRequest, engine_id: str) -> Dispatched | None:
        """Account for a request that others have sent to the engine. Return None if the engine accepts no work."""
        now = time.monotonic()
        dispatched = self.router.observed.take(request, engine_id, now)
        self._arm(now)
        if dispatched is not None:
            self._noted(dispatched, request, False)
        return dispatched

    def adopt(self, request: InferenceRequest, engine_id: str, salted: bool, *, decoding: bool = False) -> int | None:
        """Account for a request that another gateway has decided on; return the engine's incarnation here.

        If the engine accepts no work here or the request is known, account for nothing and return None.
        """
        if self.router.reservations.get(request.request_id) is not None:
            return None
        now = time.monotonic()
        dispatched = self.router.observed.take(request, engine_id, now, counted=False)
        if dispatched is None:
            return None
        self._feed.dispatched(dispatched.decision, request, salted)
        if decoding:
            self.observe(FirstToken(request.request_id))
        self._arm(now)
        return dispatched.decision.incarnation

    def observe(self, observation: Observation) -> None:
        """Report an event of a request to the router, and deliver the outcomes. Unknown ids are ignored."""
        self._feed.observed(observation)
        now = time.monotonic()
        self._deliver(self.router.observe(observation, now), now)

    def set_engines(self, facts: Sequence[EngineFacts]) -> None:
        """Set the router's engines, and deliver the outcomes."""
        now = time.monotonic()
        self._deliver(self.router.set_engines(facts, now), now)

    def set_policy(self, policy: RoutingPolicy, version: int) -> None:
        """Set the router's policy, and deliver the outcomes; raise the router's error if the policy cannot run."""
        now = time.monotonic()
        self._deliver(self.router.set_policy(policy, version, now), now)

    def report(self, engine_id: str, pending: int, room_tokens: int | None) -> None:
        """Set an engine's pending work and free room in the router, and deliver the outcomes."""
        now = time.monotonic()
        self._deliver(self.router.report(engine_id, pending, now, room_tokens), now)

    def relieve(self, engine_id: str, at_most: int) -> None:
        """Move queued requests off an engine, and deliver the outcomes."""
        now = time.monotonic()
        self._deliver(relieve(self.router, engine_id, at_most, now), now)

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

    def _deliver(self, outcomes: list[Outcome], now: float) -> None:
        """Pass outcomes to their waiters. A dispatch without a waiter is released again."""
        pending = list(outcomes)
        while pending:
            outcome = pending.pop(0)
            if isinstance(outcome, Queued):
                continue
            request_id = outcome.decision.decision_id if isinstance(outcome, Dispatched) else outcome.request_id
            # A waiter that was cancelled in this turn is done, but still in the table.
            future = self._waiting.get(request_id)
            if future is not None and not future.done():
                future.set_result(outcome)
            elif isinstance(outcome, Dispatched):
                pending += self.router.observe(Failed(request_id), now)
        self._arm(now)

    def _arm(self, now: float) -> None:
        """Schedule the router's next run at its next deadline."""
        timer = self._timer
        if timer is not None and (not self._waiting or timer.when() <= self._loop.time() + self._tick_s):
            return
        wake = self.router.next_wake(now)
        if wake is None:
            return
        pause_s = max(_MIN_WAKE_S, wake - now)
        if self._waiting:
            pause_s = min(pause_s, self._tick_s)
        if timer is not None:
            timer.cancel()
        self._timer = self._loop.call_later(pause_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now = time.monotonic()
        try:
            self._deliver(self.router.tick(now), now)
        # Armed even after an error: without the timer, the waiting requests would wait for ever.
        finally:
            self._arm(now)
