"""First come, first served among requests that can still be on time. SLO-infeasible requests go last.

Past saturation, FIFO makes every request late. Serving the few infeasible ones last keeps the others on time (research
on scheduling §5).
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from routing.ledger.fleet_view import FleetView
from routing.ledger.reservations import Reservation
from routing.policy.setting import about
from routing.queue.queue_order import Pick
from routing.queue.ranked_queue import RankedRequests
from routing.values import reasons


class LateLast(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Dispatches the oldest queued request whose first token can still meet its SLO, else the oldest."""

    forget_blocks: Annotated[
        bool,
        about(
            "Forget blocks",
            "Stops counting the blocks of requests that are already late as in-flight: newer requests overtake them "
            "and would not find the blocks.",
        ),
    ] = False

    def queue(self) -> ShedQueue:
        """Return an empty queue."""
        return ShedQueue(self.forget_blocks)


class ShedQueue:
    """Queued requests in arrival order. SLO-infeasible ones are kept separately.

    A queued request that is SLO-infeasible stays infeasible, because its remaining time only shrinks. Each is skipped
    once, so the cost of a dispatch does not depend on the number of infeasible requests.

    Mutable state: `_feasible` and `_infeasible` (ranked by arrival), `_given_up` (SLO-infeasible, not yet reported),
    and `_numbers`.
    """

    def __init__(self, forget_blocks: bool = False) -> None:
        """Start empty.

        With `forget_blocks`, given-up requests are reported, so that their blocks are no longer counted on.
        """
        self._forget_blocks = forget_blocks
        self._feasible = RankedRequests()
        self._infeasible = RankedRequests()
        self._numbers: dict[str, int] = {}
        self._given_up: list[str] = []
        self._coming = 0

    def add(self, queued: Reservation) -> None:
        """Add the queued request at the end."""
        self._coming += 1
        self._numbers[queued.request.request_id] = self._coming
        self._feasible.add(queued, (self._coming, 0))

    def remove(self, queued: Reservation) -> None:
        """Remove the queued request. Raises KeyError if it is absent."""
        (self._feasible if queued in self._feasible else self._infeasible).remove(queued)
        del self._numbers[queued.request.request_id]

    def next(self, target: int, view: FleetView, at_s: float) -> Pick:
        """Return the oldest queued request that can be on time, or the oldest one if none can."""
        hopeful = self._feasible
        while len(hopeful):
            queued = hopeful.first()
            if at_s + queued.compute_s <= queued.request.deadline_s:
                return Pick(queued, reasons.FIRST_FEASIBLE if len(self._infeasible) else reasons.ARRIVED_FIRST)
            # For good, since time only takes from it: each is skipped once, however many wait.
            hopeful.remove(queued)
            self._infeasible.add(queued, (self._numbers[queued.request.request_id], 0))
            if self._forget_blocks:
                self._given_up.append(queued.request.request_id)
        return Pick(self._infeasible.first(), reasons.INFEASIBLE_LAST)

    def given_up(self) -> list[str]:
        """Return the ids of requests that became SLO-infeasible since the last call."""
        given_up, self._given_up = self._given_up, []
        return given_up

    @property
    def late_last_s(self) -> float:
        """Return the estimated prefill seconds of the SLO-infeasible requests."""
        return self._infeasible.compute_s

    def check(self) -> None:
        """Raise AssertionError unless each queued request is in exactly one set."""
        self._feasible.check()
        self._infeasible.check()
        if len(self._feasible) + len(self._infeasible) != len(self._numbers):
            raise AssertionError("the parts do not add up to the queued requests")
