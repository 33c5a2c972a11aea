"""Priority classes: the lowest number first, as in vLLM; first come, first served within a class."""

from __future__ import annotations

import msgspec

from routing.ledger.fleet_view import FleetView
from routing.queue.queue_order import Pick, Ticket
from routing.queue.ranked_queue import RankedTickets
from routing.values import reasons


class Priority(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Grants the ticket of the lowest priority number, within one number the one that arrived first."""

    def queue(self) -> PriorityQueue:
        """Return an empty queue."""
        return PriorityQueue()


class PriorityQueue:
    """Tickets by priority, then arrival. Mutable state: `_tickets`."""

    def __init__(self) -> None:
        self._tickets = RankedTickets()

    def add(self, ticket: Ticket) -> None:
        """Put the ticket behind those of its priority that arrived before it."""
        self._tickets.add(ticket, (ticket.request.priority, ticket.request.arrived_s))

    def remove(self, ticket: Ticket) -> None:
        """Let the ticket go; raises KeyError where it is not."""
        self._tickets.remove(ticket)

    def next(self, target: int, view: FleetView, at_s: float) -> Pick:
        """Return the ticket of the lowest priority number that arrived first."""
        return Pick(self._tickets.first(), reasons.HIGHEST_PRIORITY)

    def given_up(self) -> list[str]:
        """Tell nobody: this order gives nobody up."""
        return []

    @property
    def passed_over_s(self) -> float:
        """0: a newcomer's own priority decides whom it passes."""
        return 0.0

    def check(self) -> None:
        """Raise AssertionError unless the heap agrees with the tickets."""
        self._tickets.check()
