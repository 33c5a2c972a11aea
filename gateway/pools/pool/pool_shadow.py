"""A shadow policy beside a pool's live policy: sampled, timed, and without effect on requests."""

from __future__ import annotations

import logging
import time
from random import Random
from uuid import uuid4

from gateway.base.event_log import log_event
from gateway.base.metrics import GatewayMetrics
from gateway.contracts.shadow_tally import ShadowReport, ShadowTally
from gateway.contracts.snapshot import PoolEntry, ShadowEntry
from routing.ledger.fleet_view import FleetView
from routing.router import Router
from routing.trials.shadow import ShadowPolicy
from routing.values.decision import Choice
from routing.values.feedback_events import Answered, FeedbackEvent, Released
from routing.values.inference_request import InferenceRequest

_BURST_S = 1.0
"""Seconds over which the rate limit holds. Within them, requests can arrive in a burst."""
_MAX_UNTOLD = 64
_MAX_EXPECTED = 4096
"""Limit of compared requests that wait for their first token."""


class RunningShadow:
    """One run of a shadow at this gateway. It observes the router.

    Mutable: the policy (None once it has ended), the tally, the number of choices allowed so far, and the predicted
    TTFT of compared requests until their first token.
    """

    def __init__(self, pool_id: str, entry: ShadowEntry, view: FleetView, metrics: GatewayMetrics) -> None:
        self.entry = entry
        self.ended = ""
        """Why it stopped choosing; empty while it chooses."""
        self.tally = ShadowTally()
        self._pool_id = pool_id
        self._part = uuid4().hex
        self._counter = metrics.shadow_decisions
        self._rng = Random(self._part)
        self._allowed, self._allowed_at = entry.max_per_s * _BURST_S, 0.0
        self._expected: dict[str, float] = {}
        self._policy: ShadowPolicy | None = None
        try:
            self._policy = ShadowPolicy(entry.policy, view)
        except ValueError as error:
            self._end(f"The policy cannot run: {error}")

    def placed(self, request: InferenceRequest, choice: Choice, view: FleetView, now: float) -> None:
        """Compare one choice, if this second's limit allows it."""
        policy = self._policy
        if policy is None:
            return
        if not self._may_choose(now):
            self.tally.left_out += 1
            return
        # CPU time, because waits on a busy machine are not the draft's.
        began_ns = time.thread_time_ns()
        try:
            compared = policy.compare(request, choice, view, now)
        except Exception as error:  # noqa: BLE001 - whatever a draft's rule raises, the live request goes on
            self._fail(error)
            return
        self.tally.note_cpu((time.thread_time_ns() - began_ns) * 1e-9)
        if compared is None:
            self.tally.unbound += 1
            return
        self.tally.note(compared, time.time(), self._rng)
        if len(self._expected) >= _MAX_EXPECTED:
            # Requests without an answer leave with the others; the tally only counts answered ones.
            self._expected.clear()
        self._expected[compared.request_id] = compared.live.cost
        self._counter.inc(self._pool_id, "yes" if compared.agreed else "no")

    def learn(self, event: FeedbackEvent) -> None:
        """Feed the policy, if it learns. A first token also shows the accuracy of its prediction."""
        if self._policy is None:
            return
        if type(event) is Answered:
            expected_s = self._expected.pop(event.request.request_id, None)
            if expected_s is not None:
                self.tally.note_answer(expected_s, event.at_s - event.request.arrived_s)
        elif type(event) is Released:
            self._expected.pop(event.request.request_id, None)
        began_ns = time.thread_time_ns()
        try:
            self._policy.learn(event)
        except Exception as error:  # noqa: BLE001 - as above
            self._fail(error)
        self.tally.learning_cpu_s += (time.thread_time_ns() - began_ns) * 1e-9

    def check_clock(self, unix: float) -> None:
        """End the run when its time is over."""
        if self._policy is not None and unix >= self.entry.until:
            self._end("Its time is up.", failed=False)

    def report(self, unix: float) -> ShadowReport:
        """Return the counts so far."""
        return ShadowReport(
            pool_id=self._pool_id,
            run_id=self.entry.run_id,
            part=self._part,
            at=unix,
            tally=self.tally,
            failed=self.ended,
        )

    def _may_choose(self, now: float) -> bool:
        rate = self.entry.max_per_s
        self._allowed = min(rate * _BURST_S, self._allowed + (now - self._allowed_at) * rate)
        self._allowed_at = now
        if self._allowed < 1.0:
            return False
        self._allowed -= 1.0
        return True

    def _fail(self, error: Exception) -> None:
        self._end(f"The draft's rule failed with {type(error).__name__} after {self.tally.compared} comparisons.")

    def _end(self, reason: str, *, failed: bool = True) -> None:
        self._policy = None
        if failed:
            self.ended = reason
            log_event(
                "shadow_failed", level=logging.ERROR, pool=self._pool_id, run=self.entry.run_id, reason=self.ended
            )


class PoolShadow:
    """Starts and ends shadows as the snapshot requires. Mutable: the running shadow, and the last reports of ended
    ones.
    """

    def __init__(self, router: Router, metrics: GatewayMetrics) -> None:
        self._router = router
        self._metrics = metrics
        self._running: RunningShadow | None = None
        self._reported = -1
        self._unreported: list[ShadowReport] = []

    @property
    def running(self) -> RunningShadow | None:
        """Return the running shadow."""
        return self._running

    def follow(self, entry: PoolEntry, unix: float) -> None:
        """Apply this version of the pool. A run that continues is not disturbed."""
        wanted = entry.shadow
        if wanted is not None and (wanted.base_version != entry.policy_version or unix >= wanted.until):
            wanted = None
        running = self._running
        if running is not None and wanted is not None and running.entry == wanted:
            return
        if running is not None:
            self._unreported = [*self._unreported, running.report(unix)][-_MAX_UNTOLD:]
            self._running = None
            self._router.accompany(None)
        if wanted is not None:
            self._reported = -1
            self._running = RunningShadow(entry.pool_id, wanted, self._router.view, self._metrics)
            self._router.accompany(self._running)

    def take_reports(self, unix: float) -> list[ShadowReport]:
        """Return the unreported tallies. A shadow that has failed or reached its end stops observing."""
        reports, self._unreported = self._unreported, []
        running = self._running
        if running is None:
            return reports
        running.check_clock(unix)
        if running.ended or unix >= running.entry.until:
            self._router.accompany(None)
        seen = running.tally.compared + running.tally.unbound + running.tally.left_out + bool(running.ended)
        if seen != self._reported:
            self._reported = seen
            reports.append(running.report(unix))
        return reports
