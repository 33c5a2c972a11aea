from routing.queue.orders.priority import Priority
from tests.routing.queue.queued_requests import queued, served


def test_the_lowest_priority_number_goes_first_and_ties_in_order_of_arrival() -> None:
    waiting = [queued(1, at=2.0), queued(2, priority=-1, at=3.0), queued(3, at=1.0), queued(4, priority=5)]
    assert served(Priority(), waiting, 9.0) == [2, 3, 1, 4]
