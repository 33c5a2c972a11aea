"""Tickets for the tests of queue orders."""

from routing.queue.queue_order import QueueOrder, Ticket, TicketQueue
from tests.routing.pools import pool, request

VIEW = pool().view


def ticket(number: int, *, at: float = 0.0, cost: float = 1.0, slo: float = 5.0, priority: int = 0) -> Ticket:
    return Ticket(request(number, at=at, slo=slo, priority=priority), cost)


def queue_of(order: QueueOrder, tickets: list[Ticket]) -> TicketQueue:
    queue = order.queue()
    for each in tickets:
        queue.add(each)
    return queue


def served(order: QueueOrder, tickets: list[Ticket], at_s: float) -> list[int]:
    """Return the numbers of the tickets in the order of their grants by an engine that is exactly as fast as told."""
    queue, numbers = queue_of(order, tickets), []
    for _ in tickets:
        chosen = queue.next(0, VIEW, at_s).ticket
        queue.check()
        queue.remove(chosen)
        numbers.append(int(chosen.request.request_id.split("-")[1]))
        at_s += chosen.compute_s
    return numbers
