"""Queued requests for the tests of queue orders."""

from routing.ledger.reservations import Reservation
from routing.queue.queue_order import OrderedQueue, QueueOrder
from tests.routing.pools import pool, request

VIEW = pool().view


def queued(number: int, *, at: float = 0.0, cost: float = 1.0, slo: float = 5.0, priority: int = 0) -> Reservation:
    return Reservation(request(number, at=at, slo=slo, priority=priority), 0, cost, 0)


def queue_of(order: QueueOrder, queued_requests: list[Reservation]) -> OrderedQueue:
    queue = order.queue()
    for queued_request in queued_requests:
        queue.add(queued_request)
    return queue


def served(order: QueueOrder, queued_requests: list[Reservation], at_s: float) -> list[int]:
    """Return the request numbers in the order in which an engine of exactly the estimated speed serves them."""
    queue, numbers = queue_of(order, queued_requests), []
    for _ in queued_requests:
        chosen = queue.next(0, VIEW, at_s).queued
        queue.check()
        queue.remove(chosen)
        numbers.append(int(chosen.request.request_id.split("-")[1]))
        at_s += chosen.compute_s
    return numbers
