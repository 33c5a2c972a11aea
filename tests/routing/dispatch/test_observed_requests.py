"""Requests sent by another proxy are accounted for on their engine."""

import pytest

from routing.values import reasons
from routing.values.observation import Completed, FirstToken
from tests.routing.pools import engines, pool, request


def test_an_observed_request_counts_as_work_of_its_engine_until_it_ends() -> None:
    router = pool("round_robin", size=2)
    dispatched = router.observed.take(request(1, range(8)), "e-02", 0.0)
    assert dispatched is not None
    assert (dispatched.decision.engine_id, dispatched.decision.reason) == ("e-02", reasons.OBSERVED)
    assert dispatched.decision.hit_tokens == 0
    assert [load.running for load in router.loads(0.0)] == [0, 1]
    assert router.counts.dispatched_at_once == 1
    second = router.observed.take(request(2, range(8)), "e-02", 0.0)
    assert second is not None
    assert second.decision.hit_tokens == 8 * 512
    assert second.decision.wait_s == pytest.approx(dispatched.decision.compute_s)
    for name in ("request-00000001", "request-00000002"):
        router.observe(FirstToken(name), 1.0)
        router.observe(Completed(name), 2.0)
    assert [load.running for load in router.loads(2.0)] == [0, 0]
    router.check()


def test_observed_requests_of_unknown_or_disabled_engines_are_not_bound() -> None:
    router = pool(size=1)
    assert router.observed.take(request(1), "e-09", 0.0) is None
    router.set_engines(engines(1, accepts=False), 0.0)
    assert router.observed.take(request(1), "e-01", 0.0) is None
    assert len(router.reservations) == 0


def test_an_id_can_be_used_once() -> None:
    router = pool(size=1)
    router.observed.take(request(1), "e-01", 0.0)
    with pytest.raises(ValueError, match="already here"):
        router.observed.take(request(1), "e-01", 0.0)
