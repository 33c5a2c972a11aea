from routing.queue_order import Ticket
from routing.queue_orders.fifo import Fifo
from routing.queue_orders.shed import Shed
from tests.routing.pools import pool, request

VIEW = pool().view


def test_hopeless_tickets_are_passed_over() -> None:
    waiting = (Ticket(request(1, at=0.0), 1.0), Ticket(request(2, at=1.0), 1.0))
    assert Shed().next(0, waiting, VIEW, 3.9) == 0
    assert Shed().next(0, waiting, VIEW, 4.5) == 1
    assert Fifo().next(0, waiting, VIEW, 4.5) == 0


def test_when_all_are_hopeless_the_oldest_goes() -> None:
    waiting = (Ticket(request(1, at=0.0), 1.0), Ticket(request(2, at=1.0), 1.0))
    assert Shed().next(0, waiting, VIEW, 50.0) == 0
