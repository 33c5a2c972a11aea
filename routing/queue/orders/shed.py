"""First come, first served among those that can still be on time; hopeless tickets go last.

Past saturation FIFO makes every request late at once; passing over the few that are late anyway
keeps the rest on time (research on scheduling §5).
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from routing.ledger.fleet_view import FleetView
from routing.queue.queue_order import Pick, Ticket
from routing.queue.ranked_queue import RankedTickets
from routing.values import reasons


class Shed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Grants the oldest ticket whose first token would still meet its SLO, else the oldest."""

    forget_blocks: Annotated[
        bool,
        Meta(
            title="Forget blocks",
            description="Count the blocks of tickets that were given up no longer as on their way: newcomers go before "
            "those tickets, so they would not find them.",
        ),
    ] = False

    def queue(self) -> ShedQueue:
        """Return an empty queue."""
        return ShedQueue(self.forget_blocks)


class ShedQueue:
    """Tickets in order of their coming, those found hopeless apart.

    A ticket found hopeless stays so: time only takes from it. Each is passed over once, so a grant
    costs the same however many hopeless ones wait.

    Mutable state: `_hopeful` and `_hopeless` (ranked by their coming), `_given_up` (found hopeless, not yet
    told) and `_numbers`.
    """

    def __init__(self, forget_blocks: bool = False) -> None:
        """`forget_blocks`: tell who is given up, so that nobody counts on their blocks."""
        self._forget_blocks = forget_blocks
        self._hopeful = RankedTickets()
        self._hopeless = RankedTickets()
        self._numbers: dict[str, int] = {}
        self._given_up: list[str] = []
        self._coming = 0

    def add(self, ticket: Ticket) -> None:
        """Put the ticket last."""
        self._coming += 1
        self._numbers[ticket.request.request_id] = self._coming
        self._hopeful.add(ticket, (self._coming, 0))

    def remove(self, ticket: Ticket) -> None:
        """Let the ticket go; raises KeyError where it is not."""
        (self._hopeful if ticket in self._hopeful else self._hopeless).remove(ticket)
        del self._numbers[ticket.request.request_id]

    def next(self, target: int, view: FleetView, at_s: float) -> Pick:
        """Return the oldest ticket that can be on time, the oldest of all where none can."""
        hopeful = self._hopeful
        while len(hopeful):
            ticket = hopeful.first()
            if at_s + ticket.compute_s <= ticket.request.deadline_s:
                return Pick(ticket, reasons.FIRST_FEASIBLE if len(self._hopeless) else reasons.ARRIVED_FIRST)
            hopeful.remove(ticket)
            self._hopeless.add(ticket, (self._numbers[ticket.request.request_id], 0))
            if self._forget_blocks:
                self._given_up.append(ticket.request.request_id)
        return Pick(self._hopeless.first(), reasons.HOPELESS_LAST)

    def given_up(self) -> list[str]:
        """Return who was found hopeless since the last question."""
        found, self._given_up = self._given_up, []
        return found

    @property
    def passed_over_s(self) -> float:
        """Estimated prefill seconds of the hopeless tickets."""
        return self._hopeless.compute_s

    def check(self) -> None:
        """Raise AssertionError unless each ticket stands in exactly one part."""
        self._hopeful.check()
        self._hopeless.check()
        if len(self._hopeful) + len(self._hopeless) != len(self._numbers):
            raise AssertionError("the parts do not add up to the tickets")
