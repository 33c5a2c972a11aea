"""What is known only afterwards: who went first, how much longer waits came out, and so what was lost."""

from __future__ import annotations

from typing import Any, cast

import pytest

from gateway.contracts.regret import ADMISSION, GATEWAY, QUEUE_ORDER, TRADE, Regret
from gateway.pool.recent_decisions import DecisionRecord
from gateway.reports.decision_sampling import is_late, kept
from gateway.reports.hindsight import Hindsight
from gateway.traffic.past_moments import PastMoments
from routing.cost.cost_model import PrefillCost
from routing.values import reasons
from routing.values.decision import Candidate, Decision

COST = PrefillCost(0.0, 1e-4, 0.0, 0.0)
HERE = Candidate("here", 0, 0.1, 0.2, 1.7)
THERE = Candidate("there", 0, 0.1, 0.2, 1.7)


def record(name: str, arrived_s: float, queued_s: float, ttft_s: float | None, **fields: Any) -> DecisionRecord:
    known: dict[str, Any] = {
        "decision_id": name, "pool_id": "pool", "engine_id": "here", "incarnation": 1, "placement": "least_cost",
        "order": "slack", "policy_version": 1, "reason": reasons.LEAST_COST, "prompt_tokens": 2000, "hit_tokens": 0,
        "wait_s": 0.1, "compute_s": 0.2, "decided_s": arrived_s, "queued_s": queued_s, "candidates": (HERE, THERE),
    }  # fmt: skip
    decision = Decision(**{**known, **fields})
    made = DecisionRecord(decision, cast("Any", None), "t", "tokens", arrived_s, 1.0, 0.0, ("here",))
    made.first_token_s = None if ttft_s is None else arrived_s + ttft_s
    made.outcome = "completed"
    return made


def regret_of(hindsight: Hindsight, made: DecisionRecord, *, may_defer: bool = False) -> Regret:
    found = hindsight.regret_of(made, COST, 1.0, may_defer=may_defer, view_age_s=0.0)
    assert found is not None
    return found


def test_younger_tickets_granted_first_are_the_queue_order() -> None:
    hindsight = Hindsight()
    for number in range(4):
        hindsight.dispatched(record(f"younger-{number}", 10.5, 1.0 + number, None, compute_s=1.0))
    hindsight.dispatched(record("older", 9.0, 2.0, None, compute_s=50.0))
    found = regret_of(hindsight, record("late", 10.0, 5.1, 5.3))
    assert found.cause == QUEUE_ORDER
    assert found.queue_order_s == pytest.approx(4.0)


def test_what_passed_before_the_router_was_asked_is_the_gateway_s() -> None:
    made = record("slow", 10.0, 0.0, 2.8, decided_s=12.5)
    made.asked_s = 12.5
    found = regret_of(Hindsight(), made)
    assert (found.cause, found.gateway_s) == (GATEWAY, 2.5)
    unbound = record("unbound", 10.0, 2.5, 2.8, decided_s=12.5)
    unbound.asked_s = 10.0
    assert regret_of(Hindsight(), unbound).gateway_s == 0.0


def test_waits_that_all_came_out_longer_are_no_engine_s_fault() -> None:
    hindsight = Hindsight()
    for number in range(3):
        there = record(f"d-{number}", 10.0 + number, 3.1, 3.3, engine_id="there", candidates=(THERE, HERE))
        regret_of(hindsight, there)
    found = regret_of(hindsight, record("here", 12.0, 3.1, 3.3))
    assert found.seconds == pytest.approx(0.0, abs=0.01)


def test_time_kept_back_by_admission_is_its_own() -> None:
    deferred = record("deferred", 10.0, 4.1, 4.3, decided_s=14.0)
    assert regret_of(Hindsight(), deferred, may_defer=True).cause == ADMISSION
    assert regret_of(Hindsight(), deferred).seconds == pytest.approx(0.0, abs=0.01)


def test_a_moved_ticket_is_judged_from_its_move_on() -> None:
    moved = record("moved", 10.0, 4.1, 4.3, migrated_s=14.0, reason=reasons.MIGRATED)
    assert regret_of(Hindsight(), moved, may_defer=True).seconds == pytest.approx(0.0, abs=0.01)


def test_waiting_for_cache_that_was_there_is_a_trade() -> None:
    chosen = Candidate("here", 1000, 2.0, 0.1, 2.8)
    made = record("traded", 10.0, 2.0, 2.1, candidates=(chosen, THERE), hit_tokens=1000)
    made.cached_tokens = 1000
    assert regret_of(Hindsight(), made).cause == TRADE


def test_nothing_is_said_of_requests_without_a_first_token_or_of_second_attempts() -> None:
    assert Hindsight().regret_of(record("d", 1.0, 0.0, None), COST, 1.0, may_defer=False, view_age_s=None) is None
    again = record("again", 1.0, 0.0, 2.0)
    again.attempts = ("there", "here")
    assert Hindsight().regret_of(again, COST, 1.0, may_defer=False, view_age_s=None) is None


def test_ages_are_told_for_the_moment_of_the_decision() -> None:
    moments = PastMoments(limit=2, apart_s=0.5)
    for at_s in (1.0, 1.2, 2.0, 3.0, 4.0):
        moments.note(at_s)
    assert moments.age_s(4.5) == pytest.approx(0.5)
    assert moments.age_s(2.5) is None
    assert len(moments._moments) < 4
    assert moments.any_between(2.5, 3.5)
    assert not moments.any_between(3.1, 3.9)


@pytest.mark.parametrize(("count", "at_most", "left"), [(10, 20, 10), (10, 5, 5), (100, 7, 7), (3, 0, 0), (0, 5, 0)])
def test_ordinary_ones_are_kept_evenly_and_stand_for_their_like(count: int, at_most: int, left: int) -> None:
    ended = [record(f"d-{number}", 0.0, 0.0, 0.1) for number in range(count)]
    chosen = kept(ended, [is_late(each) for each in ended], at_most)
    assert len(chosen) == left
    if left:
        assert sum(1 / share for _, share in chosen) == pytest.approx(count)
        places = [ended.index(each) for each, _ in chosen]
        assert places == sorted(places)
        assert max(places) - min(places) >= (left - 1) * count / left - 1


def test_every_late_one_is_kept() -> None:
    ended = [record(f"d-{number}", 0.0, 0.0, 9.0 if number % 2 else 0.1) for number in range(20)]
    chosen = kept(ended, [is_late(each) for each in ended], 0)
    assert len(chosen) == 10
    assert {share for _, share in chosen} == {1.0}
