"""A pool without engines keeps requests until its first engine accepts work, and measures how long that takes."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from routing.dispatch.cold_start import RECENT_S, UNBOUND_WAIT_S
from routing.policy.policy_document import RoutingPolicy
from routing.router import Router
from routing.values.decision import Dispatched, Queued, Rejected
from tests.routing.pools import engines, request

POLICY = RoutingPolicy(max_wait_s=60.0)


@pytest.fixture
def router() -> Router:
    made = Router("pool", POLICY, 1)
    made.cold.adopt(20.0)
    return made


def serve(router: Router, now: float) -> list[object]:
    return list(router.set_engines(engines(1), now))


def test_a_request_without_any_engine_waits_longer_than_in_other_pools_and_is_served(router: Router) -> None:
    assert isinstance(router.place(request("r"), 0.0), Queued)
    assert router.tick(UNBOUND_WAIT_S + 1) == []
    (outcome,) = serve(router, 30.0)
    assert isinstance(outcome, Dispatched)
    assert router.cold.unserved(30.0) == 0
    router.check()


def test_the_wait_ends_at_the_limit_of_any_wait(router: Router) -> None:
    router.place(request("r"), 0.0)
    assert router.next_wake(0.0) == POLICY.max_wait_s
    (rejected,) = router.tick(POLICY.max_wait_s + 0.1)
    assert isinstance(rejected, Rejected)


def test_retry_after_is_what_is_left_of_the_expected_start(router: Router) -> None:
    def retry_after(now: float) -> float:
        outcome = router.place(request(f"at {now}"), now, hold=False)
        assert isinstance(outcome, Rejected)
        return outcome.retry_after_s

    router.place(request("waits"), 100.0)
    assert retry_after(100.0) == 20.0
    assert retry_after(115.0) == 5.0
    # A late start is expected to stay late for as long again.
    assert retry_after(120.0) == 1.0
    assert retry_after(150.0) == 30.0


def test_the_expected_time_follows_measured_starts(router: Router) -> None:
    for number in range(12):
        begun_s = 1000.0 * number
        router.place(request(f"r{number}"), begun_s)
        serve(router, begun_s + 4.0)
        router.set_engines((), begun_s + 500.0)
    assert router.cold.expected_s == pytest.approx(4.0, abs=0.3)
    router.cold.adopt(20.0)
    assert router.cold.expected_s == pytest.approx(4.0, abs=0.3), "the same configuration discards no measurement"
    router.cold.adopt(7.0)
    assert router.cold.expected_s == 7.0


def test_each_request_demands_an_engine_and_those_that_wait_repeat_it(router: Router) -> None:
    moments: list[float] = []
    router.cold.on_demand = moments.append
    router.place(request("no wait"), 1.0, hold=False)
    assert (moments, router.cold.unserved(1.0), router.cold.unserved(1.0 + RECENT_S)) == ([1.0], 1, 0)
    router.place(request("waits"), 2.0)
    router.tick(3.0)
    assert (moments, router.cold.unserved(500.0)) == ([1.0, 2.0, 3.0], 1)
    serve(router, 4.0)
    router.tick(5.0)
    assert moments == [1.0, 2.0, 3.0]


def test_a_pool_that_starts_no_engine_demands_none_and_rejects_as_before() -> None:
    router, moments = Router("pool", POLICY, 1), list[float]()
    router.cold.on_demand = moments.append
    rejected = router.place(request("no wait"), 0.0, hold=False)
    assert isinstance(rejected, Rejected)
    assert rejected.retry_after_s == 1.0
    router.place(request("waits"), 0.0)
    (late,) = router.tick(UNBOUND_WAIT_S)
    assert isinstance(late, Rejected)
    assert (late.retry_after_s, moments) == (UNBOUND_WAIT_S, [])


def test_a_request_ends_its_wait_at_its_own_deadline(router: Router) -> None:
    router.place(replace(request("r"), give_up_s=15.0), 0.0)
    assert router.next_wake(0.0) == 15.0
    assert router.tick(14.9) == []
    (rejected,) = router.tick(15.0)
    assert isinstance(rejected, Rejected)
    assert (rejected.code, rejected.retry_after_s) == ("deadline_passed", 5.0)


def test_the_queue_limit_holds_without_engines_too() -> None:
    router = Router("pool", replace(POLICY, queue_limit=2), 1)
    router.cold.adopt(20.0)
    outcomes = [router.place(request(f"r{number}"), 0.0) for number in range(3)]
    assert [type(outcome) for outcome in outcomes] == [Queued, Queued, Rejected]
    full = outcomes[2]
    assert isinstance(full, Rejected)
    assert (full.code, full.retry_after_s) == ("queue_full", 20.0)


def test_no_request_is_infeasible_only_because_its_engine_still_starts() -> None:
    policy = replace(POLICY, admission=replace(POLICY.admission, reject_infeasible=True))
    router = Router("pool", policy, 1)
    router.cold.adopt(20.0)
    assert isinstance(router.place(request("r"), 0.0), Queued)
    assert router.tick(2 * request("r").ttft_slo_s) == []
    (outcome,) = serve(router, 30.0)
    assert isinstance(outcome, Dispatched)
