"""What is known only afterwards: who was dispatched before whom, how much longer waits were, and so what was lost."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TypeVar

from gateway.contracts.regret import Course, Option, Regret, regret, rejection_regret
from gateway.pool.recent_decisions import DecisionRecord
from routing.cost.cost_model import PrefillCost
from routing.values import reasons

MAX_ENGINES = 4096
MAX_DISPATCHES = 512
MAX_DRIFTS = 8
NEAR_S = 10.0
"""Waits of requests decided within this time of each other came out longer for the same reasons."""

_Dispatch = tuple[float, float, float]
"""Dispatched, arrived (monotonic seconds), estimated prefill seconds."""
Noted = TypeVar("Noted")


class Hindsight:
    """Dispatches after a wait and drifts of waits, by engine; the engine that is silent longest leaves first.

    Mutable state: both tables; one thread at a time.
    """

    def __init__(self) -> None:
        self._dispatches: OrderedDict[str, deque[_Dispatch]] = OrderedDict()
        self._drifts: OrderedDict[str, deque[tuple[float, float]]] = OrderedDict()

    def dispatched(self, record: DecisionRecord) -> None:
        """Note a dispatch; of those at once nobody was overtaken by."""
        decision = record.decision
        if decision.queued_s > 0.0:
            dispatches = _of(self._dispatches, decision.engine_id, MAX_DISPATCHES)
            dispatches.append((record.arrived_s + decision.queued_s, record.arrived_s, decision.compute_s))

    def regret_of(
        self,
        record: DecisionRecord,
        cost: PrefillCost,
        speed: float,
        *,
        may_defer: bool,
        view_age_s: float | None,
    ) -> Regret | None:
        """Return what another engine would have spared the ended request; None where nothing can be said.

        `cost` and `speed` are the chosen engine's; `may_defer`: admission may have kept the request back.
        """
        decision, ttft_s = record.decision, record.ttft_s
        candidates = decision.candidates
        options = [
            Option(
                each.engine_id,
                each.hit_tokens,
                each.wait_s,
                each.compute_s,
                self._drift_s(each.engine_id, decision.decided_s),
            )
            for each in candidates
        ]
        before_s = max(0.0, max(decision.decided_s, decision.migrated_s) - record.arrived_s)
        gateway_s = min(before_s, record.asked_s - record.arrived_s) if record.asked_s is not None else 0.0
        if not decision.engine_id:
            return rejection_regret(options, record.ttft_slo_s - before_s)
        if ttft_s is None or not candidates or len(record.attempts) > 1 + (decision.pair is not None):
            # After a failed attempt the time went elsewhere; that is the engine's failure, no choice's.
            return None
        hit_tokens = decision.hit_tokens if record.cached_tokens is None else record.cached_tokens
        chosen = candidates[0]
        length = decision.prompt_tokens
        longer_s = (cost.seconds(length, hit_tokens) - cost.seconds(length, chosen.hit_tokens)) / speed
        course = Course(
            ttft_s,
            decision.queued_s,
            max(0.0, chosen.compute_s + longer_s),
            hit_tokens,
            before_s,
            may_defer and decision.reason != reasons.MIGRATED,
            gateway_s,
            self._overtaken_s(record),
            view_age_s,
        )
        self._note_drift(chosen.engine_id, decision.decided_s, ttft_s - before_s - course.compute_s - chosen.wait_s)
        return regret(options, course)

    def _overtaken_s(self, record: DecisionRecord) -> float:
        dispatched_s = record.arrived_s + record.decision.queued_s
        dispatches = self._dispatches.get(record.decision.engine_id, ())
        return sum(
            compute_s
            for other_s, arrived_s, compute_s in dispatches
            if arrived_s > record.arrived_s and arrived_s <= other_s < dispatched_s
        )

    def _note_drift(self, engine_id: str, decided_s: float, drift_s: float) -> None:
        _of(self._drifts, engine_id, MAX_DRIFTS).append((decided_s, drift_s))

    def _drift_s(self, engine_id: str, decided_s: float) -> float:
        near = [drift for at_s, drift in self._drifts.get(engine_id, ()) if abs(at_s - decided_s) <= NEAR_S]
        return sum(near) / len(near) if near else 0.0


def _of(table: OrderedDict[str, deque[Noted]], engine_id: str, limit: int) -> deque[Noted]:
    """Return the engine's deque, made where there is none, as the one used last."""
    found = table.get(engine_id)
    if found is None:
        found = table[engine_id] = deque(maxlen=limit)
        if len(table) > MAX_ENGINES:
            table.popitem(last=False)
    else:
        table.move_to_end(engine_id)
    return found
