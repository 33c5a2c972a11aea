"""Request records for tests of code that reads them."""

from __future__ import annotations

from typing import Any, cast

from gateway.pools.pool.recent_decisions import DecisionRecord
from gateway.pools.traffic.traffic_window import COMPLETED, FAILED
from routing.values import reasons
from routing.values.decision import Decision


def decision_record(
    name: str, arrived_s: float = 0.0, ttft_s: float | None = None, *, outcome: str = "", **fields: Any
) -> DecisionRecord:
    """Return the record of a request with an objective of 1 s; `fields` override those of its decision."""
    known: dict[str, Any] = {
        "decision_id": name, "pool_id": "pool", "engine_id": "here", "incarnation": 1, "placement": "least_cost",
        "order": "slack", "policy_version": 1, "reason": reasons.LEAST_COST, "prompt_tokens": 2000, "hit_tokens": 0,
        "wait_s": 0.1, "compute_s": 0.2, "decided_s": arrived_s,
    }  # fmt: skip
    decision = Decision(**{**known, **fields})
    made = DecisionRecord(decision, cast("Any", None), "t", "tokens", arrived_s, 1.0, 0.0, ("here",))
    made.first_token_s = None if ttft_s is None else arrived_s + ttft_s
    made.outcome, made.late = outcome, outcome != "" and made.misses_objective()
    return made


def ended_record(
    at_s: float,
    ttft_s: float | None = 1.0,
    *,
    prompt: int = 100,
    cached: int | None = 40,
    predicted: int = 0,
    on_time: bool = True,
    outcome: str = COMPLETED,
    engine_id: str = "a",
    key_source: str = "tokens",
) -> DecisionRecord:
    """Return the record of a request that ended at this time."""
    fields: dict[str, Any] = {"prompt_tokens": prompt, "hit_tokens": predicted, "engine_id": engine_id}
    made = decision_record("r", 0.0, ttft_s, outcome=outcome, **fields)
    made.key_source = key_source
    made.finished_s, made.cached_tokens, made.late = at_s, cached, not on_time or outcome == FAILED
    return made
