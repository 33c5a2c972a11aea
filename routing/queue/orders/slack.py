"""Feasible deadlines first: as many tickets on time as can be, short ones as early as that allows.

Research on scheduling §5: tickets in order of their deadlines; where one would be late, the largest so
far leaves the feasible set (Moore 1968, with Hodgson's algorithm, minimises the number of late jobs on
one machine); of the feasible ones the shortest that makes no earlier one late is served; tickets that
cannot be on time any more go last.
"""

from __future__ import annotations

from bisect import bisect_left, insort

import msgspec

from routing.ledger.fleet_view import FleetView
from routing.queue.queue_order import Pick, Ticket
from routing.queue.ranked_queue import RankedTickets
from routing.values import reasons

_Entry = tuple[float, int, float, Ticket]
"""Deadline, number of its coming (so that no two compare equal), estimated prefill seconds, ticket."""


class Slack(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Keeps as many tickets on time as can be and grants the shortest of them that makes no other late."""

    def queue(self) -> SlackQueue:
        """Return an empty queue."""
        return SlackQueue()


class SlackQueue:
    """The feasible set by deadline, kept from grant to grant; dropped and hopeless tickets apart.

    When the ticket granted last took as long as estimated, what is left of the feasible set is still
    feasible and, new deadlines being the latest, still as large as can be: so only new tickets are
    worked in. A dropped ticket may become feasible again when others leave; the cheapest one is tried at each
    question. A hopeless one stays so, because time only takes from it.

    Mutable state: `_line` (entries by deadline; feasible but for tickets added since the last
    question), `_dropped` (by estimate), `_hopeless` (by coming) and `_entries` (request id → entry).
    """

    def __init__(self) -> None:
        self._line: list[_Entry] = []
        self._dropped = RankedTickets()
        self._hopeless = RankedTickets()
        self._entries: dict[str, _Entry] = {}
        self._coming = 0

    def add(self, ticket: Ticket) -> None:
        """Take the ticket into the feasible set; the next question finds out whether it can stay."""
        self._coming += 1
        entry = (ticket.request.deadline_s, self._coming, ticket.compute_s, ticket)
        self._entries[ticket.request.request_id] = entry
        insort(self._line, entry)

    def remove(self, ticket: Ticket) -> None:
        """Let the ticket go; raises KeyError where it is not."""
        entry = self._entries.pop(ticket.request.request_id)
        if ticket in self._dropped:
            self._dropped.remove(ticket)
        elif ticket in self._hopeless:
            self._hopeless.remove(ticket)
        else:
            del self._line[bisect_left(self._line, entry)]

    def next(self, target: int, view: FleetView, at_s: float) -> Pick:
        """Return the shortest feasible ticket that makes no earlier feasible one late, else the oldest hopeless one."""
        while (late := self._first_late(at_s)) is not None:
            self._drop_largest(late, at_s)
        self._readmit(at_s)
        if not self._line:
            return Pick(self._hopeless.first(), reasons.HOPELESS_LAST)
        reason = reasons.SHORTEST_FEASIBLE if len(self._line) > 1 else reasons.ONLY_FEASIBLE
        return Pick(self._shortest(at_s), reason)

    def given_up(self) -> list[str]:
        """Tell nobody: in large fleets newcomers had better follow the blocks of tickets given up."""
        return []

    @property
    def passed_over_s(self) -> float:
        """Estimated prefill seconds of the hopeless tickets, and of the dropped ones while they are."""
        return self._hopeless.compute_s + self._dropped.compute_s

    def check(self) -> None:
        """Raise AssertionError unless each ticket stands in exactly one part and the line is in order."""
        self._dropped.check()
        self._hopeless.check()
        if self._line != sorted(self._line):
            raise AssertionError("the feasible set is not in order of deadlines")
        if len(self._line) + len(self._dropped) + len(self._hopeless) != len(self._entries):
            raise AssertionError("the parts do not add up to the tickets")

    def _first_late(self, at_s: float) -> int | None:
        """Return the position of the first ticket that would be late in order of deadlines; None where none is."""
        end_s = at_s
        for position, entry in enumerate(self._line):
            end_s += entry[2]
            if end_s > entry[0]:
                return position
        return None

    def _drop_largest(self, until: int, at_s: float) -> None:
        """Take the largest of the tickets up to this position out of the feasible set."""
        sizes = [entry[2] for entry in self._line[: until + 1]]
        deadline_s, number, compute_s, ticket = self._line.pop(sizes.index(max(sizes)))
        if at_s + compute_s > deadline_s:
            self._hopeless.add(ticket, (number, 0))
        else:
            self._dropped.add(ticket, (compute_s, 0))

    def _readmit(self, at_s: float) -> None:
        """Take back the cheapest dropped tickets, one after another, while they make nothing late."""
        dropped = self._dropped
        while len(dropped):
            ticket = dropped.first()
            entry = self._entries[ticket.request.request_id]
            if at_s + entry[2] > entry[0]:
                dropped.remove(ticket)
                self._hopeless.add(ticket, (entry[1], 0))
                continue
            insort(self._line, entry)
            if self._first_late(at_s) is not None:
                del self._line[bisect_left(self._line, entry)]
                return
            dropped.remove(ticket)

    def _shortest(self, at_s: float) -> Ticket:
        end_s, spare_s = at_s, float("inf")
        chosen = self._line[0]
        for entry in self._line:
            compute_s = entry[2]
            if compute_s < chosen[2] and compute_s <= spare_s:
                chosen = entry
            end_s += compute_s
            spare_s = min(spare_s, entry[0] - end_s)
        return chosen[3]
