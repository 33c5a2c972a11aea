from hypothesis import given
from hypothesis import strategies as st

from routing.ledger.reservations import Reservation
from routing.queue.ranked_queue import RankedRequests
from tests.routing.queue.queued_requests import queued


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=200))
def test_the_lowest_rank_is_first_and_ties_are_in_order_of_arrival(steps: list[tuple[int, bool]]) -> None:
    ranked, waiting = RankedRequests(), list[tuple[int, int, Reservation]]()
    for number, (rank, leaves) in enumerate(steps):
        added = queued(number)
        ranked.add(added, (rank, 0))
        waiting.append((rank, number, added))
        if leaves:
            gone = waiting.pop(number % len(waiting))
            ranked.remove(gone[2])
        ranked.check()
        assert len(ranked) == len(waiting)
        if waiting:
            assert ranked.first() == min(waiting)[2]


def test_a_queued_request_that_returns_has_its_new_rank() -> None:
    ranked, one, two = RankedRequests(), queued(1), queued(2)
    ranked.add(one, (1, 0))
    ranked.add(two, (2, 0))
    ranked.remove(one)
    ranked.add(one, (3, 0))
    assert ranked.first() == two
    ranked.check()


def test_entries_of_removed_requests_do_not_accumulate() -> None:
    ranked = RankedRequests()
    ranked.add(queued(0), (0, 0))
    for number in range(1, 5000):
        ranked.add(queued(number), (number, 0))
        ranked.remove(queued(number))
    assert len(ranked._heap) < 200
