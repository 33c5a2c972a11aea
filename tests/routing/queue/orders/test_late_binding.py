"""Pull scheduling from the engine's side: which queued request, if any, it pulls."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from routing.ledger.reservations import Reservation
from routing.queue.orders.late_binding import LateBinding, LateQueue
from routing.queue.queue_order import Pick
from routing.router import Router
from routing.values import reasons
from routing.values.decision import CENTRAL
from tests.routing.pools import engines, pool, request

LONG, OTHER = range(20), range(50, 70)


def queued(router: Router, number: int, blocks: range, *, at: float = 0.0, slo: float = 5.0) -> Reservation:
    asked = request(number, blocks, at=at, slo=slo)
    return Reservation(asked, CENTRAL, router.view.compute_s(asked, 0, 0), 0)


def queue_of(queued_requests: list[Reservation], order: LateBinding | None = None) -> LateQueue:
    queue = (order or LateBinding()).pool_queue()
    for queued_request in queued_requests:
        queue.add(queued_request)
    return queue


def idle_pool(size: int = 2) -> Router:
    return pool("central", "late_binding", size=size)


def test_an_engine_pulls_requests_it_holds_and_leaves_others_to_other_engines() -> None:
    router = idle_pool()
    cold, warm = queued(router, 1, LONG), queued(router, 2, OTHER)
    router.blocks_stored("e-01", warm.request.keys)
    queue = queue_of([cold, warm])
    assert queue.next(0, router.view, 0.0) == Pick(warm, reasons.PULLED_BEST_FIT)
    assert queue.next(1, router.view, 0.0) == Pick(cold, reasons.PULLED_BEST_FIT)
    queue.check()


def test_a_queued_request_waits_for_its_home_only_if_that_is_free_soon_enough() -> None:
    router = idle_pool()
    warm = queued(router, 1, LONG)
    router.blocks_stored("e-01", warm.request.keys)
    for ready_s, pulls in ((0.0, False), (3.4, False), (3.6, True)):
        router.view.load.ready_at[0] = ready_s
        assert (queue_of([warm]).next(1, router.view, 0.0) is not None) == pulls
    router.view.load.ready_at[0] = 0.4
    assert queue_of([warm], LateBinding(patience=0.1)).next(1, router.view, 0.0) is None
    router.view.load.ready_at[0] = 0.6
    assert queue_of([warm], LateBinding(patience=0.1)).next(1, router.view, 0.0) is not None


def test_a_shorter_request_does_not_go_first_if_that_makes_an_earlier_one_late() -> None:
    router = idle_pool(1)
    urgent, short = queued(router, 1, LONG, slo=0.95), queued(router, 2, range(90, 92))
    assert queue_of([urgent, short]).next(0, router.view, 0.0) == Pick(urgent, reasons.PULLED_BEST_FIT)
    relaxed = queued(router, 1, LONG)
    assert queue_of([relaxed, short]).next(0, router.view, 0.0) == Pick(short, reasons.PULLED_BEST_FIT)


def test_infeasible_requests_go_last_in_order_of_arrival() -> None:
    router = idle_pool(1)
    late = [queued(router, number, LONG, slo=0.5) for number in (1, 2)]
    feasible = queued(router, 3, LONG)
    queue = queue_of([*late, feasible])
    assert queue.next(0, router.view, 0.0) == Pick(feasible, reasons.ONLY_FEASIBLE)
    assert queue.late_last_s == late[0].compute_s + late[1].compute_s
    queue.remove(feasible)
    assert queue.next(0, router.view, 1.0) == Pick(late[0], reasons.INFEASIBLE_LAST)


def test_an_excluded_engine_pulls_only_if_no_other_accepts_work() -> None:
    router = idle_pool()
    asked = request(1, LONG)
    rejected = Reservation(asked, CENTRAL, 0.9, 0, excluded=frozenset({"e-01"}))
    assert queue_of([rejected]).next(0, router.view, 0.0) is None
    assert queue_of([rejected]).next(1, router.view, 0.0) == Pick(rejected, reasons.ONLY_FEASIBLE)
    router.set_engines(engines(1), 0.0)
    assert queue_of([rejected]).next(0, router.view, 0.0) == Pick(rejected, reasons.ONLY_FEASIBLE)


def test_engines_of_different_speed_are_evaluated_separately() -> None:
    router = pool("central", "late_binding", size=0)
    facts = [*engines(1, speed=4.0), engines(2)[1]]
    router.set_engines(facts, 0.0)
    waiting = queued(router, 1, LONG)
    assert queue_of([waiting]).next(1, router.view, 0.0) is None
    assert queue_of([waiting]).next(0, router.view, 0.0) == Pick(waiting, reasons.ONLY_FEASIBLE)


def test_a_large_number_of_late_requests_is_removed_in_one_pass() -> None:
    router = idle_pool(4)
    waiting = [queued(router, number, range(30 * number, 30 * number + 20)) for number in range(500)]
    queue = queue_of(waiting)
    assert queue.next(0, router.view, 0.0) is not None
    queue.check()
    # Four engines in five seconds make about twenty prompts of 0.93 s.
    assert 15 <= len(queue._line) <= 25


@given(seed=st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_every_queued_request_is_served_once_while_caches_change(seed: int) -> None:
    rng, router = Random(seed), idle_pool(3)
    queue, waiting, at_s = queue_of([]), {}, 0.0
    for number in range(60):
        at_s += rng.random()
        coming = queued(router, number, range(rng.randrange(3), rng.randrange(4, 24)), at=at_s, slo=rng.choice([1, 9]))
        queue.add(coming)
        waiting[coming.request.request_id] = coming
        router.blocks_stored(f"e-0{rng.randrange(1, 4)}", rng.choice(list(waiting.values())).request.keys)
        target = rng.randrange(3)
        router.view.load.ready_at[target] = at_s + rng.random()
        pick = queue.next(target, router.view, at_s)
        assert queue.next(target, router.view, at_s) == pick
        queue.check()
        if pick is not None:
            queue.remove(waiting.pop(pick.queued.request.request_id))
    at_s += 100.0
    while waiting:
        pick = queue.next(0, router.view, at_s)
        assert pick is not None
        queue.remove(waiting.pop(pick.queued.request.request_id))
