"""Regret of a decision in hindsight, computed from its record and the drift of waits around that time."""

from __future__ import annotations

from collections import OrderedDict, deque

import msgspec

from controlplane.request_log.decision_story.before_words import seconds_of
from gateway.contracts.regret import ATTEMPT, GATEWAY, TOKENIZER, Course, Regret, RegretOption, regret, rejection_regret
from gateway.contracts.stored_decision import RUNNING, StoredDecision
from routing.cost.cost_model import PrefillCost
from routing.values import reasons

MAX_ENGINES = 4096
MAX_DRIFTS = 8
NEAR_S = 10.0
"""Decisions within this time of each other share the same drift of waits."""
_UNKNOWN_COST = PrefillCost(0.0, 0.0, 0.0, 0.0)


def prefill_s(stored: StoredDecision) -> float:
    """Return the modeled seconds of prefill on the chosen engine with the reported hit. A decision must have chosen."""
    decision, cost = stored.decision, stored.cost or _UNKNOWN_COST
    hit_tokens = decision.hit_tokens if stored.cached_tokens is None else stored.cached_tokens
    chosen, length = decision.candidates[0], decision.prompt_tokens
    longer_s = (cost.seconds(length, hit_tokens) - cost.seconds(length, chosen.hit_tokens)) / stored.speed
    return max(0.0, chosen.compute_s + longer_s)


class Hindsight:
    """Drifts of waits by engine. The engine without records for the longest time is dropped first.

    Mutable state: the table. Not thread-safe.
    """

    def __init__(self) -> None:
        self._drifts: OrderedDict[str, deque[tuple[float, float]]] = OrderedDict()

    def judged(self, stored: StoredDecision) -> StoredDecision:
        """Return the record with its regret. A running request has none yet, and a judged record is unchanged."""
        if stored.outcome == RUNNING or stored.regret is not None:
            return stored
        regret = self.regret_of(stored)
        return stored if regret is None else msgspec.structs.replace(stored, regret=regret)

    def regret_of(self, stored: StoredDecision) -> Regret | None:
        """Return the time that another engine would have saved the completed request; None if unknown."""
        decision, ttft_s = stored.decision, stored.first_token_after_s
        decided_at = stored.arrived_at + stored.decided_after_s
        candidates = decision.candidates
        options = [
            RegretOption(
                candidate.engine_id,
                candidate.hit_tokens,
                candidate.wait_s,
                candidate.compute_s,
                self._drift_s(candidate.engine_id, decided_at),
            )
            for candidate in candidates
        ]
        before_s = stored.decided_after_s + max(0.0, decision.migrated_s - decision.decided_s)
        if not decision.engine_id:
            return rejection_regret(options, stored.ttft_slo_s - before_s)
        tried_again = len(stored.attempts) > 1 + (decision.pair is not None)
        if ttft_s is None or not candidates or stored.outcome == "failed" or (tried_again and not stored.failures):
            # A failure does not judge the choice; an older record does not contain the time of a failed attempt.
            return None
        hit_tokens = decision.hit_tokens if stored.cached_tokens is None else stored.cached_tokens
        chosen = candidates[0]
        course = Course(
            ttft_s,
            decision.queued_s,
            prefill_s(stored),
            hit_tokens,
            before_s,
            stored.may_defer and decision.reason != reasons.MIGRATED,
            seconds_of(stored, GATEWAY),
            seconds_of(stored, TOKENIZER),
            seconds_of(stored, ATTEMPT),
            stored.overtaken_s,
            stored.known[0].report_age_s if stored.known else None,
        )
        self._note(chosen.engine_id, decided_at, ttft_s - before_s - course.compute_s - chosen.wait_s)
        return regret(options, course)

    def _note(self, engine_id: str, decided_at: float, drift_s: float) -> None:
        drifts = self._drifts.get(engine_id)
        if drifts is None:
            drifts = self._drifts[engine_id] = deque(maxlen=MAX_DRIFTS)
            if len(self._drifts) > MAX_ENGINES:
                self._drifts.popitem(last=False)
        else:
            self._drifts.move_to_end(engine_id)
        drifts.append((decided_at, drift_s))

    def _drift_s(self, engine_id: str, decided_at: float) -> float:
        near = [drift for at, drift in self._drifts.get(engine_id, ()) if abs(at - decided_at) <= NEAR_S]
        return sum(near) / len(near) if near else 0.0
