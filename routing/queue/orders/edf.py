"""Earliest deadline first: the textbook order, right while everything can be on time."""

from __future__ import annotations

import msgspec

from routing.ledger.fleet_view import FleetView
from routing.queue.queue_order import Pick, Ticket
from routing.queue.ranked_queue import RankedTickets
from routing.values import reasons


class Edf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Grants the ticket whose deadline comes first, whether or not it can still be met."""

    def queue(self) -> EdfQueue:
        """Return an empty queue."""
        return EdfQueue()


class EdfQueue:
    """Tickets by deadline. Mutable state: `_tickets`."""

    def __init__(self) -> None:
        self._tickets = RankedTickets()

    def add(self, ticket: Ticket) -> None:
        """Put the ticket behind those of its deadline."""
        self._tickets.add(ticket, (ticket.request.deadline_s, 0))

    def remove(self, ticket: Ticket) -> None:
        """Let the ticket go; raises KeyError where it is not."""
        self._tickets.remove(ticket)

    def next(self, target: int, view: FleetView, at_s: float) -> Pick:
        """Return the ticket of the earliest deadline."""
        return Pick(self._tickets.first(), reasons.EARLIEST_DEADLINE)

    def given_up(self) -> list[str]:
        """Tell nobody: this order gives nobody up."""
        return []

    @property
    def passed_over_s(self) -> float:
        """0: a newcomer's own deadline decides whom it passes."""
        return 0.0

    def check(self) -> None:
        """Raise AssertionError unless the heap agrees with the tickets."""
        self._tickets.check()
