"""Aggregates the events of a simulated pool into the windows that scaling and rebalancing use."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from planning.facts.fleet_facts import DemandPoint, PoolWindow
from routing.ledger.fleet_view import EngineLoad
from routing.values.load_cv import LoadSmoother, load_cv
from simulator.engine_models.engine_profile import EngineProfile
from simulator.fleet.fleet_simulation import FleetSimulation
from simulator.fleet.request_record import FINISHED, UNFINISHED, RequestRecord

KEPT_S = 900.0
"""Seconds for which windows are kept."""
_HIT_STEP = 0.2
"""Weight of a new window in the moving average of the cached share of prompt tokens."""


class WindowWatch:
    """Builds the windows. Mutable state: the windows, all demand so far, and the requests without an outcome.

    A request counts at its first token or its deadline, whichever is first. A growing queue therefore lowers attainment
    before any of its requests is served.
    """

    def __init__(self, profile: EngineProfile) -> None:
        self.windows: deque[PoolWindow] = deque()
        self.demand: list[DemandPoint] = []
        self._profile = profile
        self._smoother = LoadSmoother()
        self._open: list[RequestRecord] = []
        self._seen = 0
        self._from_s = 0.0
        self._hit_share = 0.0

    def observe(self, simulation: FleetSimulation, loads: Sequence[EngineLoad], now: float) -> None:
        """Close the window that ends now; do nothing if no time has passed."""
        span_s = now - self._from_s
        if span_s <= 0:
            return
        arrived = simulation.history[self._seen :]
        self._seen = len(simulation.history)
        self._open += arrived
        counted, on_time, rejected = self._outcomes(now)
        work_s = sum(self._work_s(item.request.prompt_tokens) for item in arrived)
        unbound, unbound_tokens, _ = simulation.router.unbound(now)
        # By the mean prompt: prefill time grows with the square, so one prompt of all tokens would take far longer.
        unbound_s = unbound * self._work_s(unbound_tokens // unbound) if unbound else 0.0
        in_flight_s = [load.in_flight_s for load in loads]
        pending = {load.engine_id: float(load.in_flight_tokens) for load in loads}
        self.windows.append(
            PoolWindow(
                from_s=self._from_s,
                span_s=span_s,
                requests=counted,
                on_time=on_time,
                rejected=rejected,
                work_s=work_s,
                queued=unbound + sum(load.bound for load in loads),
                queued_s=unbound_s + sum(in_flight_s),
                prompt_tokens=sum(item.request.prompt_tokens for item in arrived),
                load_cv=load_cv(self._smoother.update(pending, now)),
                engines=len(simulation.router.view.roster.accepting),
            )
        )
        self.demand.append(DemandPoint(now, work_s / span_s))
        self._from_s = now
        while self.windows[0].from_s < now - KEPT_S:
            self.windows.popleft()

    def _outcomes(self, now: float) -> tuple[int, int, int]:
        """Return how many requests got an outcome since the last call, and how many were on time or rejected."""
        left: list[RequestRecord] = []
        counted = on_time = rejected = hits = tokens = 0
        for record in self._open:
            if record.first_token_s is not None:
                on_time += record.first_token_s <= record.request.deadline_s
                hits += record.hit_tokens or 0
                tokens += record.request.prompt_tokens
            elif record.status not in (FINISHED, UNFINISHED):
                rejected += 1
            # Late requests count before they are served, so that a growing queue shows in attainment.
            elif record.request.deadline_s > now:
                left.append(record)
                continue
            counted += 1
        self._open = left
        if tokens:
            self._hit_share += _HIT_STEP * (hits / tokens - self._hit_share)
        return counted, on_time, rejected

    def _work_s(self, prompt_tokens: int) -> float:
        """Return the seconds of prefill for a prompt, assuming the recent cached share."""
        return self._profile.prefill_s(prompt_tokens, int(self._hit_share * prompt_tokens))
