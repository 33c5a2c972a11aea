"""Requests sent by another proxy are accounted for on their engine."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from routing.dispatch.request_queue import WaitingRoom
from routing.ledger.reservations import Reservation
from routing.policy.policy_document import Stage
from routing.registry import build_queue_order
from routing.router import Router
from routing.values import reasons
from routing.values.decision import CENTRAL, Decision
from routing.values.observation import Completed, FirstToken
from tests.routing.pools import engines, pool, request

DECISION = Decision("", "pool", "", 0, "least_cost", "fifo", 1, "", 0, 0, 0.0, 0.0, 0.0)
ORDERS = st.sampled_from(["fifo", "late_last", "slack", "edf"])


def room(order: str = "fifo") -> WaitingRoom:
    return WaitingRoom(build_queue_order(Stage(name=order)))


class RoomUnderRandomUse(RuleBasedStateMachine):
    """Queued requests are on their target in order of arrival, whatever the order of dispatches."""

    def __init__(self) -> None:
        super().__init__()
        self.view = pool(size=4).view
        self.room = room()
        self.waiting: dict[str, tuple[int, float]] = {}
        self.number = 0

    @rule(where=st.sampled_from([CENTRAL, 0, 1, 2]), at=st.floats(0, 100), compute=st.floats(0, 9))
    def add(self, where: int, at: float, compute: float) -> None:
        self.number += 1
        asked = request(self.number, at=at)
        self.room.add(Reservation(asked, where, compute, 0), DECISION)
        self.waiting[asked.request_id] = (where, at)

    @precondition(lambda self: self.waiting)
    @rule(which=st.integers(0, 99))
    def remove(self, which: int) -> None:
        name = sorted(self.waiting)[which % len(self.waiting)]
        assert self.room.remove(name) is DECISION
        del self.waiting[name]

    @rule(order=ORDERS)
    def reorder(self, order: str) -> None:
        self.room.reorder(build_queue_order(Stage(name=order)))

    @rule(at=st.floats(0, 120))
    def dispatch(self, at: float) -> None:
        for target in self.room.targets():
            if target != CENTRAL:
                name = self.room.next(target, self.view, at).queued.request.request_id
                assert self.waiting.pop(name)[0] == target
                self.room.remove(name)

    @invariant()
    def it_agrees(self) -> None:
        self.room.check()
        assert len(self.room) == len(self.waiting)
        arrivals = [at for _, at in self.waiting.values()]
        assert self.room.oldest_arrival_s() == min(arrivals, default=None)
        old = {queued.request.request_id for queued in self.room.older_than(50.0)}
        assert old == {name for name, (_, at) in self.waiting.items() if at <= 50.0}
        for target in (CENTRAL, 0, 1, 2):
            here = [name for name, (where, _) in self.waiting.items() if where == target]
            assert [queued.request.request_id for queued in self.room.of(target)] == here
            assert self.room.has(target) == bool(here)


TestRoomUnderRandomUse = RoomUnderRandomUse.TestCase
TestRoomUnderRandomUse.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


def test_removed_requests_are_forgotten_even_while_the_oldest_stays() -> None:
    waiting = room()
    waiting.add(Reservation(request(0, at=0.0), 0, 1.0, 0), DECISION)
    for number in range(1, 1000):
        waiting.add(Reservation(request(number, at=float(number)), 0, 1.0, 0), DECISION)
        waiting.remove(f"request-{number:08}")
    assert len(waiting._arrivals) <= 2 * 2 + 65


def test_a_new_order_applies_to_requests_already_queued() -> None:
    router: Router = pool(size=1)
    waiting = room("fifo")
    waiting.add(Reservation(request(1, at=0.0), 0, 4.0, 0), DECISION)
    waiting.add(Reservation(request(2, at=0.0), 0, 1.0, 0), DECISION)
    assert waiting.next(0, router.view, 0.0).queued.request.request_id == "request-00000001"
    waiting.reorder(build_queue_order(Stage(name="slack")))
    assert waiting.next(0, router.view, 0.0).queued.request.request_id == "request-00000002"


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
