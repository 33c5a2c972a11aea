"""Causes that are known only in hindsight, such as waits that were longer than predicted."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.request_log.hindsight import Hindsight
from gateway.contracts.regret import ADMISSION, GATEWAY, QUEUE_ORDER, TRADE, Regret
from gateway.contracts.stored_decision import RUNNING, Known, StoredDecision
from routing.cost.cost_model import PrefillCost
from routing.values import reasons
from routing.values.decision import Candidate, Decision
from tests.gateway.ended_requests import row_of

COST = PrefillCost(0.0, 1e-4, 0.0, 0.0)
HERE = Candidate("here", 0, 0.1, 0.2, 1.7)
THERE = Candidate("there", 0, 0.1, 0.2, 1.7)


def record(name: str, arrived_s: float, queued_s: float, ttft_s: float | None, **fields: Any) -> StoredDecision:
    known: dict[str, Any] = {
        "decision_id": name, "pool_id": "pool", "engine_id": "here", "incarnation": 1, "placement": "least_cost",
        "order": "slack", "policy_version": 1, "reason": reasons.LEAST_COST, "prompt_tokens": 2000, "hit_tokens": 0,
        "wait_s": 0.1, "compute_s": 0.2, "decided_s": arrived_s, "queued_s": queued_s, "candidates": (HERE, THERE),
    }  # fmt: skip
    outer = {key: fields.pop(key) for key in list(fields) if key not in Decision.__struct_fields__}
    decision = Decision(**{**known, **fields})
    facts: dict[str, Any] = {
        **row_of(decision), "decision": decision, "arrived_at": arrived_s, "region": "here", "served_model": "m",
        "tenant_id": "t", "key_source": "tokens", "ttft_slo_s": 1.0, "attempts": ("here",),
        "decided_after_s": decision.decided_s - arrived_s, "first_token_after_s": ttft_s, "cost": COST,
        "known": (Known("here", "e-1", report_age_s=0.0),),
    }  # fmt: skip
    return StoredDecision(**{**facts, **outer})


def regret_of(hindsight: Hindsight, made: StoredDecision) -> Regret:
    regret = hindsight.judged(made).regret
    assert regret is not None
    return regret


def test_overtaking_requests_are_attributed_to_the_queue_order() -> None:
    regret = regret_of(Hindsight(), record("late", 10.0, 5.1, 5.3, overtaken_s=4.0))
    assert regret.cause == QUEUE_ORDER
    assert regret.queue_order_s == pytest.approx(4.0)


def test_time_before_the_router_is_attributed_to_the_gateway() -> None:
    regret = regret_of(Hindsight(), record("slow", 10.0, 0.0, 2.8, decided_s=12.5, asked_after_s=2.5))
    assert (regret.cause, regret.gateway_s) == (GATEWAY, 2.5)
    unbound = record("unbound", 10.0, 2.5, 2.8, decided_s=12.5, asked_after_s=0.0)
    assert regret_of(Hindsight(), unbound).gateway_s == 0.0


def test_generally_longer_waits_are_attributed_to_no_engine() -> None:
    hindsight = Hindsight()
    for number in range(3):
        there = record(f"d-{number}", 10.0 + number, 3.1, 3.3, engine_id="there", candidates=(THERE, HERE))
        regret_of(hindsight, there)
    regret = regret_of(hindsight, record("here", 12.0, 3.1, 3.3))
    assert regret.seconds == pytest.approx(0.0, abs=0.01)


def test_admission_delay_is_attributed_to_admission() -> None:
    deferred = {"decided_s": 14.0}
    assert regret_of(Hindsight(), record("d", 10.0, 4.1, 4.3, **deferred, may_defer=True)).cause == ADMISSION
    assert regret_of(Hindsight(), record("d", 10.0, 4.1, 4.3, **deferred)).seconds == pytest.approx(0.0, abs=0.01)


def test_migrated_request_is_judged_from_its_migration_on() -> None:
    moved = record("moved", 10.0, 4.1, 4.3, migrated_s=14.0, reason=reasons.MIGRATED, may_defer=True)
    assert regret_of(Hindsight(), moved).seconds == pytest.approx(0.0, abs=0.01)


def test_longer_wait_for_a_cache_hit_is_a_trade() -> None:
    chosen = Candidate("here", 1000, 2.0, 0.1, 2.8)
    made = record("traded", 10.0, 2.0, 2.1, candidates=(chosen, THERE), hit_tokens=1000, cached_tokens=1000)
    assert regret_of(Hindsight(), made).cause == TRADE


def test_rejection_of_a_feasible_request_is_attributed_to_admission() -> None:
    made = record("rejected", 10.0, 0.0, None, engine_id="", attempts=(), outcome="rejected")
    regret = regret_of(Hindsight(), made)
    assert (regret.cause, regret.seconds) == (ADMISSION, pytest.approx(0.7))


def test_requests_without_a_first_token_and_retries_have_no_regret() -> None:
    assert Hindsight().judged(record("d", 1.0, 0.0, None)).regret is None
    assert Hindsight().judged(record("again", 1.0, 0.0, 2.0, attempts=("there", "here"))).regret is None
    assert Hindsight().judged(record("runs", 1.0, 0.0, 2.0, outcome=RUNNING)).regret is None
