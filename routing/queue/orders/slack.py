"""Feasible deadlines first: as many queued requests on time as possible, short ones as early as that allows.

Research on scheduling §5: queued requests are in deadline order. If one would be late, the largest so far leaves the
feasible set (Moore 1968, with Hodgson's algorithm, minimizes the number of late jobs on one machine). The shortest
feasible request that makes no earlier one late is served next. Queued requests that can no longer be on time go last.
"""

from __future__ import annotations

from bisect import bisect_left, insort

import msgspec

from routing.ledger.fleet_view import FleetView
from routing.ledger.reservations import Reservation
from routing.queue.queue_order import Pick
from routing.queue.ranked_queue import RankedRequests
from routing.values import reasons

_Entry = tuple[float, int, float, Reservation]
"""Deadline, arrival number (makes entries unequal), estimated prefill seconds, queued request."""


class Slack(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Keeps as many queued requests on time as possible, and dispatches the shortest one that makes no other late."""

    def queue(self) -> SlackQueue:
        """Return an empty queue."""
        return SlackQueue()


class SlackQueue:
    """The feasible set by deadline, kept between dispatches. Dropped and SLO-infeasible requests are kept separately.

    If the last dispatched request took as long as estimated, the remaining feasible set is still feasible. New
    deadlines are the latest ones, so it is also still as large as possible, and only new queued requests must be added.
    A dropped request can become feasible again when others leave; the cheapest one is tried at each call. An infeasible
    request stays infeasible, because its remaining time only shrinks.

    Mutable state: `_line` (entries by deadline, feasible except for requests added since the last call), `_dropped` (by
    estimate), `_infeasible` (by arrival), and `_entries` (request id → entry).
    """

    def __init__(self) -> None:
        self._line: list[_Entry] = []
        self._dropped = RankedRequests()
        self._infeasible = RankedRequests()
        self._entries: dict[str, _Entry] = {}
        self._coming = 0

    def add(self, queued: Reservation) -> None:
        """Add the queued request to the feasible set. The next call determines whether it stays."""
        self._coming += 1
        entry = (queued.request.deadline_s, self._coming, queued.compute_s, queued)
        self._entries[queued.request.request_id] = entry
        insort(self._line, entry)

    def remove(self, queued: Reservation) -> None:
        """Remove the queued request. Raises KeyError if it is absent."""
        entry = self._entries.pop(queued.request.request_id)
        if queued in self._dropped:
            self._dropped.remove(queued)
        elif queued in self._infeasible:
            self._infeasible.remove(queued)
        else:
            del self._line[bisect_left(self._line, entry)]

    def next(self, target: int, view: FleetView, at_s: float) -> Pick:
        """Return the shortest feasible request that makes no earlier one late, else the oldest infeasible one."""
        while (late := self._first_late(at_s)) is not None:
            self._drop_largest(late, at_s)
        self._readmit(at_s)
        if not self._line:
            return Pick(self._infeasible.first(), reasons.INFEASIBLE_LAST)
        reason = reasons.SHORTEST_FEASIBLE if len(self._line) > 1 else reasons.ONLY_FEASIBLE
        return Pick(self._shortest(at_s), reason)

    def given_up(self) -> list[str]:
        """Return an empty list: in large fleets newcomers should still follow the blocks of given-up requests."""
        return []

    @property
    def late_last_s(self) -> float:
        """Return the estimated prefill seconds of the SLO-infeasible and the currently dropped requests."""
        return self._infeasible.compute_s + self._dropped.compute_s

    def check(self) -> None:
        """Raise AssertionError unless each queued request is in exactly one set and `_line` is in order."""
        self._dropped.check()
        self._infeasible.check()
        if self._line != sorted(self._line):
            raise AssertionError("the feasible set is not in order of deadlines")
        if len(self._line) + len(self._dropped) + len(self._infeasible) != len(self._entries):
            raise AssertionError("the parts do not add up to the queued requests")

    def _first_late(self, at_s: float) -> int | None:
        """Return the position of the first request that would be late in deadline order, or None."""
        end_s = at_s
        for position, entry in enumerate(self._line):
            end_s += entry[2]
            if end_s > entry[0]:
                return position
        return None

    def _drop_largest(self, until: int, at_s: float) -> None:
        """Drop the largest queued request up to this position from the feasible set."""
        sizes = [entry[2] for entry in self._line[: until + 1]]
        deadline_s, number, compute_s, queued = self._line.pop(sizes.index(max(sizes)))
        # Late even if it went next: time cannot make it feasible again.
        if at_s + compute_s > deadline_s:
            self._infeasible.add(queued, (number, 0))
        else:
            self._dropped.add(queued, (compute_s, 0))

    def _readmit(self, at_s: float) -> None:
        """Take back the cheapest dropped queued requests one by one while they make none late."""
        dropped = self._dropped
        while len(dropped):
            queued = dropped.first()
            entry = self._entries[queued.request.request_id]
            if at_s + entry[2] > entry[0]:
                dropped.remove(queued)
                self._infeasible.add(queued, (entry[1], 0))
                continue
            insort(self._line, entry)
            if self._first_late(at_s) is not None:
                del self._line[bisect_left(self._line, entry)]
                return
            dropped.remove(queued)

    def _shortest(self, at_s: float) -> Reservation:
        end_s, spare_s = at_s, float("inf")
        chosen = self._line[0]
        for entry in self._line:
            compute_s = entry[2]
            # It goes first, so it must fit into the spare time of all those before it.
            if compute_s < chosen[2] and compute_s <= spare_s:
                chosen = entry
            end_s += compute_s
            spare_s = min(spare_s, entry[0] - end_s)
        return chosen[3]
