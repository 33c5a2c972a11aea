from hypothesis import given
from hypothesis import strategies as st

from routing.queue.queue_order import Ticket
from routing.queue.ranked_queue import RankedTickets
from tests.routing.queue_orders.tickets import ticket


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=200))
def test_the_first_is_the_lowest_rank_and_among_equals_the_first_to_come(steps: list[tuple[int, bool]]) -> None:
    ranked, standing = RankedTickets(), list[tuple[int, int, Ticket]]()
    for number, (rank, leaves) in enumerate(steps):
        added = ticket(number)
        ranked.add(added, (rank, 0))
        standing.append((rank, number, added))
        if leaves:
            gone = standing.pop(number % len(standing))
            ranked.remove(gone[2])
        ranked.check()
        assert len(ranked) == len(standing)
        if standing:
            assert ranked.first() == min(standing)[2]


def test_a_ticket_that_comes_back_stands_by_its_new_rank() -> None:
    ranked, one, two = RankedTickets(), ticket(1), ticket(2)
    ranked.add(one, (1, 0))
    ranked.add(two, (2, 0))
    ranked.remove(one)
    ranked.add(one, (3, 0))
    assert ranked.first() == two
    ranked.check()


def test_entries_of_tickets_that_left_do_not_pile_up() -> None:
    ranked = RankedTickets()
    ranked.add(ticket(0), (0, 0))
    for number in range(1, 5000):
        ranked.add(ticket(number), (number, 0))
        ranked.remove(ticket(number))
    assert len(ranked._heap) < 200
