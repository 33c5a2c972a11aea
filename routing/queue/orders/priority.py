"""Priority classes: the lowest number first, as in vLLM; first come, first served within a class."""

from __future__ import annotations

import msgspec

from routing.ledger.fleet_view import FleetView
from routing.queue.queue_order import Pick, QueuedRequest
from routing.queue.ranked_queue import RankedRequests
from routing.values import reasons


class Priority(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Dispatches the queued request of the lowest priority number, within one number the one that arrived first."""

    def queue(self) -> PriorityQueue:
        """Return an empty queue."""
        return PriorityQueue()


class PriorityQueue:
    """Queued requests by priority, then arrival. Mutable state: `_queued`."""

    def __init__(self) -> None:
        self._queued = RankedRequests()

    def add(self, queued: QueuedRequest) -> None:
        """Put the queued request behind those of its priority that arrived before it."""
        self._queued.add(queued, (queued.request.priority, queued.request.arrived_s))

    def remove(self, queued: QueuedRequest) -> None:
        """Let the queued request go; raises KeyError where it is not."""
        self._queued.remove(queued)

    def next(self, target: int, view: FleetView, at_s: float) -> Pick:
        """Return the queued request of the lowest priority number that arrived first."""
        return Pick(self._queued.first(), reasons.HIGHEST_PRIORITY)

    def given_up(self) -> list[str]:
        """Tell nobody: this order gives nobody up."""
        return []

    @property
    def late_last_s(self) -> float:
        """0: a newcomer's own priority decides whom it passes."""
        return 0.0

    def check(self) -> None:
        """Raise AssertionError unless the heap agrees with the queued requests."""
        self._queued.check()
