"""Central placement with pull scheduling, tested through the router."""

import pytest

from routing.policy.policy_document import RoutingPolicy, Stage
from routing.router import Router
from routing.values import reasons
from routing.values.decision import Dispatched, Queued, Rejected
from routing.values.observation import FirstToken
from tests.routing.pools import BLOCK, engine_of, engines, pool, request

LONG = range(20)


def central(size: int, **settings: object) -> Router:
    return pool("central", "late_binding", size=size, prefill_window_tokens=1, lookahead_s=0.0, **settings)  # type: ignore[arg-type]


def fresh(number: int) -> range:
    return range(30 * number, 30 * number + 20)


def test_a_request_goes_immediately_to_an_idle_engine_that_holds_most_of_it() -> None:
    router = central(4)
    asked = request(1, LONG)
    router.blocks_stored("e-03", asked.keys)
    outcome = router.place(asked, 0.0)
    assert engine_of(outcome) == "e-03"
    assert isinstance(outcome, Dispatched)
    assert (outcome.decision.reason, outcome.decision.hit_tokens) == (reasons.PULLED, 20 * BLOCK)
    assert {candidate.engine_id for candidate in outcome.decision.candidates} > {"e-03"}


def test_new_prompts_rotate_over_an_idle_fleet() -> None:
    router = central(3)
    assert {engine_of(router.place(request(number, fresh(number)), 0.0)) for number in range(3)} == {
        "e-01", "e-02", "e-03",
    }  # fmt: skip


def test_a_waiting_request_is_unbound_and_a_free_engine_pulls_it() -> None:
    router = central(2)
    for number in (1, 2):
        router.place(request(number, fresh(number)), 0.0)
    waiting = [request(3, fresh(3)), request(4, fresh(4)[:4])]
    for item in waiting:
        outcome = router.place(item, 0.1)
        assert isinstance(outcome, Queued)
        assert (outcome.decision.engine_id, outcome.decision.reason) == ("", reasons.HELD)
    assert router.unbound(0.1)[:2] == (2, 24 * BLOCK)
    (dispatched,) = router.observe(FirstToken("request-00000002"), 0.9)
    assert isinstance(dispatched, Dispatched)
    decision = dispatched.decision
    assert (decision.decision_id, decision.queue_reason) == ("request-00000004", reasons.PULLED_BEST_FIT)
    assert (decision.overtook, decision.queued_s) == (1, pytest.approx(0.9))
    router.check()


def test_the_retry_time_counts_unbound_requests() -> None:
    router = central(1, queue_limit=4)
    for number in range(1, 6):
        router.place(request(number, fresh(number), slo=60.0), 0.0)
    rejected = router.place(request(6, fresh(6)), 0.0)
    assert isinstance(rejected, Rejected)
    # One prefill of 0.93 s runs and four wait.
    assert rejected.retry_after_s == pytest.approx(5 * 0.934, rel=0.02)


def test_queued_requests_survive_policy_changes_in_both_directions() -> None:
    router = central(1)
    for number in range(1, 5):
        router.place(request(number, fresh(number)), 0.0)
    router.set_policy(RoutingPolicy(placement=Stage(name="least_cost"), prefill_window_tokens=1), 2, 0.1)
    assert router.unbound(0.1)[0] == 0
    assert router.loads(0.1)[0].bound == 3
    late = RoutingPolicy(placement=Stage(name="central"), order=Stage(name="late_binding"), prefill_window_tokens=1)
    router.set_policy(late, 3, 0.2)
    router.place(request(5, fresh(5)), 0.2)
    router.check()
    dispatched, now = set(), 0.2
    names = ["request-00000001"]
    while names:
        now += 1.0
        outcomes = router.observe(FirstToken(names.pop()), now)
        names += [outcome.decision.decision_id for outcome in outcomes if isinstance(outcome, Dispatched)]
        dispatched |= set(names)
    assert dispatched == {f"request-{number:08}" for number in range(2, 6)}


def test_queued_requests_survive_an_empty_fleet() -> None:
    router = central(0)
    for number in range(3):
        assert isinstance(router.place(request(number, fresh(number)), 0.0), Queued)
    assert len(router.set_engines(engines(2), 1.0)) == 2
    assert router.unbound(1.0)[0] == 1
    router.check()


def test_a_request_that_cannot_wait_goes_to_the_cheapest_engine() -> None:
    router = central(2)
    asked = request(1, LONG)
    router.blocks_stored("e-02", asked.keys)
    for number in (1, 2, 3):
        assert engine_of(router.place(request(number, LONG), 0.0, hold=False)) == "e-02"
