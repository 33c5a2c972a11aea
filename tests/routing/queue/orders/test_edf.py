from routing.queue.orders.edf import Edf
from tests.routing.queue.queued_requests import queued, served


def test_the_earliest_deadline_goes_first_even_if_it_cannot_be_met() -> None:
    waiting = [queued(1, slo=5.0), queued(2, slo=0.5), queued(3, at=1.0, slo=2.0)]
    assert served(Edf(), waiting, 2.0) == [2, 3, 1]


def test_equal_deadlines_go_in_order_of_arrival() -> None:
    assert served(Edf(), [queued(2), queued(1), queued(3)], 0.0) == [2, 1, 3]
