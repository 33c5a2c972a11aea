from hypothesis import given
from hypothesis import strategies as st

from routing.ledger.reservations import Reservation
from routing.queue.orders.fifo import Fifo
from routing.queue.orders.late_last import LateLast
from routing.queue.orders.ranked_orders import Edf, Priority
from routing.queue.orders.slack import Slack
from tests.routing.queue.queued_requests import VIEW, queue_of, queued, served

JOBS = st.lists(st.tuples(st.floats(0.05, 3.0), st.floats(0.1, 12.0)), min_size=1, max_size=12)
"""Prefill seconds and seconds to the deadline."""


def most_on_time(queued_requests: list[Reservation], at_s: float) -> int:
    """Return how many requests can be on time, by Moore's algorithm from scratch."""
    kept: list[float] = []
    for queued_request in sorted(queued_requests, key=lambda one: one.request.deadline_s):
        kept.append(queued_request.compute_s)
        if at_s + sum(kept) > queued_request.request.deadline_s:
            kept.remove(max(kept))
    return len(kept)


def on_time(order: list[int], queued_requests: list[Reservation], at_s: float) -> int:
    by_number = {
        int(queued_request.request.request_id.split("-")[1]): queued_request for queued_request in queued_requests
    }
    count = 0
    for number in order:
        at_s += by_number[number].compute_s
        count += at_s <= by_number[number].request.deadline_s + 1e-9
    return count


def test_the_shortest_goes_first_while_all_are_on_time() -> None:
    assert served(Slack(), [queued(1, cost=2.0), queued(2, cost=0.5), queued(3, cost=1.0)], 0.0) == [2, 3, 1]


def test_a_short_request_waits_if_it_would_make_an_earlier_one_late() -> None:
    waiting = [queued(1, cost=2.0, slo=2.2), queued(2, cost=0.5, slo=9.0)]
    assert served(Slack(), waiting, 0.0) == [1, 2]


def test_the_largest_request_is_dropped_if_not_all_can_be_on_time() -> None:
    waiting = [queued(1, cost=4.0), queued(2, cost=1.0), queued(3, cost=1.0)]
    assert served(Slack(), waiting, 0.0) == [2, 3, 1]


def test_infeasible_requests_go_last_in_order_of_arrival() -> None:
    waiting = [queued(1, cost=9.0), queued(2, cost=6.0), queued(3, cost=4.0)]
    assert served(Slack(), waiting, 0.0) == [3, 1, 2]


def test_a_dropped_request_returns_when_another_leaves() -> None:
    waiting = [queued(1, cost=3.0), queued(2, cost=3.5), queued(3, cost=1.0)]
    queue = queue_of(Slack(), waiting)
    assert queue.next(0, VIEW, 0.0).queued == waiting[2]
    queue.remove(waiting[2])
    queue.remove(waiting[0])
    assert queue.next(0, VIEW, 0.5).queued == waiting[1]


@given(JOBS)
def test_the_maximum_number_is_on_time(jobs: list[tuple[float, float]]) -> None:
    queued_requests = [queued(number, cost=cost, slo=slo) for number, (cost, slo) in enumerate(jobs)]
    assert on_time(served(Slack(), queued_requests, 0.0), queued_requests, 0.0) == most_on_time(queued_requests, 0.0)


@given(st.lists(st.tuples(st.floats(0.05, 3.0), st.floats(0.0, 2.0)), min_size=1, max_size=40), st.data())
def test_the_feasible_set_stays_maximal_while_queued_requests_are_added_and_removed(
    arrivals: list[tuple[float, float]], data: st.DataObject
) -> None:
    queue, waiting, at_s = Slack().queue(), dict[int, Reservation](), 0.0
    for number, (cost, gap) in enumerate(arrivals):
        waiting[number] = queued(number, at=at_s, cost=cost)
        queue.add(waiting[number])
        if data.draw(st.booleans()):
            left = list(waiting.values())
            possible = most_on_time(left, at_s)
            chosen = queue.next(0, VIEW, at_s).queued
            queue.check()
            assert queue.next(0, VIEW, at_s).queued == chosen
            queue.remove(chosen)
            left.remove(chosen)
            waiting = {name: one for name, one in waiting.items() if one is not chosen}
            at_s += chosen.compute_s
            on_time_now = at_s <= chosen.request.deadline_s
            assert on_time_now + most_on_time(left, at_s) == possible
        else:
            at_s += gap


def test_a_new_request_does_not_wait_for_dropped_and_infeasible_ones() -> None:
    queue = queue_of(Slack(), [queued(1, cost=9.0), queued(2, cost=3.0), queued(3, cost=3.5), queued(4, cost=1.0)])
    assert queue.late_last_s == 0.0
    queue.next(0, VIEW, 0.0)
    assert queue.late_last_s == 9.0 + 3.5


def test_the_earliest_deadline_goes_first_even_if_it_cannot_be_met() -> None:
    waiting = [queued(1, slo=5.0), queued(2, slo=0.5), queued(3, at=1.0, slo=2.0)]
    assert served(Edf(), waiting, 2.0) == [2, 3, 1]


def test_equal_deadlines_go_in_order_of_arrival() -> None:
    assert served(Edf(), [queued(2), queued(1), queued(3)], 0.0) == [2, 1, 3]


def test_the_lowest_priority_number_goes_first_and_ties_in_order_of_arrival() -> None:
    waiting = [queued(1, at=2.0), queued(2, priority=-1, at=3.0), queued(3, at=1.0), queued(4, priority=5)]
    assert served(Priority(), waiting, 9.0) == [2, 3, 1, 4]


def test_infeasible_queued_requests_are_skipped() -> None:
    waiting = [queued(1, at=0.0), queued(2, at=1.0)]
    assert queue_of(LateLast(), waiting).next(0, VIEW, 3.9).queued == waiting[0]
    assert queue_of(LateLast(), waiting).next(0, VIEW, 4.5).queued == waiting[1]
    assert queue_of(Fifo(), waiting).next(0, VIEW, 4.5).queued == waiting[0]


def test_when_all_are_infeasible_the_oldest_goes_first() -> None:
    waiting = [queued(1, at=0.0, cost=1.0), queued(2, at=1.0, cost=9.0)]
    queue = queue_of(LateLast(), waiting)
    assert queue.next(0, VIEW, 4.0).queued == waiting[0]
    assert queue.next(0, VIEW, 50.0).queued == waiting[0]


def test_an_infeasible_request_can_leave_the_queue() -> None:
    waiting = [queued(1, at=0.0), queued(2, at=1.0)]
    queue = queue_of(LateLast(), waiting)
    queue.next(0, VIEW, 4.5)
    queue.remove(waiting[0])
    queue.check()
    assert queue.next(0, VIEW, 50.0).queued == waiting[1]


def test_infeasible_requests_come_last_in_order_of_arrival() -> None:
    waiting = [queued(1, cost=9.0), queued(2, cost=8.0), queued(3, cost=1.0), queued(4, cost=2.0)]
    assert served(LateLast(), waiting, 0.0) == [3, 4, 1, 2]


def test_a_request_given_up_is_reported_once_and_only_if_its_blocks_are_forgotten() -> None:
    waiting = [queued(1, at=0.0), queued(2, at=1.0)]
    forgetful, plain = queue_of(LateLast(forget_blocks=True), waiting), queue_of(LateLast(), waiting)
    for queue in (forgetful, plain):
        queue.next(0, VIEW, 4.5)
    assert forgetful.given_up() == [waiting[0].request.request_id]
    assert forgetful.given_up() == []
    assert plain.given_up() == []
