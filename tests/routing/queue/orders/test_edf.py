from routing.queue.orders.edf import Edf
from tests.routing.queue_orders.tickets import served, ticket


def test_the_earliest_deadline_goes_first_even_if_it_cannot_be_met() -> None:
    waiting = [ticket(1, slo=5.0), ticket(2, slo=0.5), ticket(3, at=1.0, slo=2.0)]
    assert served(Edf(), waiting, 2.0) == [2, 3, 1]


def test_equal_deadlines_go_in_order_of_coming() -> None:
    assert served(Edf(), [ticket(2), ticket(1), ticket(3)], 0.0) == [2, 1, 3]
