"""First come, first served."""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from routing.ledger.fleet_view import FleetView
from routing.queue.queue_order import Pick, Ticket
from routing.values import reasons


class Fifo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Grants the ticket that has waited longest."""

    def queue(self) -> FifoQueue:
        """Return an empty queue."""
        return FifoQueue()


class FifoQueue:
    """Tickets in order of their coming. Mutable state: `_tickets`.

    An OrderedDict, because a plain dict walks over all that left at its head.
    """

    def __init__(self) -> None:
        self._tickets: OrderedDict[str, Ticket] = OrderedDict()

    def add(self, ticket: Ticket) -> None:
        """Put the ticket last."""
        self._tickets[ticket.request.request_id] = ticket

    def remove(self, ticket: Ticket) -> None:
        """Let the ticket go; raises KeyError where it is not."""
        del self._tickets[ticket.request.request_id]

    def next(self, target: int, view: FleetView, at_s: float) -> Pick:
        """Return the first ticket."""
        return Pick(next(iter(self._tickets.values())), reasons.ARRIVED_FIRST)

    def given_up(self) -> list[str]:
        """Tell nobody: this order gives nobody up."""
        return []

    @property
    def passed_over_s(self) -> float:
        """0: nobody is passed over."""
        return 0.0

    def check(self) -> None:
        """Raise AssertionError unless each ticket stands under its own id."""
        if any(each.request.request_id != request_id for request_id, each in self._tickets.items()):
            raise AssertionError("a ticket stands under another id")
