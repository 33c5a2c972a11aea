"""Earliest deadline first: the textbook order, right while everything can be on time."""

from __future__ import annotations

import msgspec

from routing.ledger.fleet_view import FleetView
from routing.queue.queue_order import Pick, QueuedRequest
from routing.queue.ranked_queue import RankedRequests
from routing.values import reasons


class Edf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Dispatches the queued request whose deadline comes first, whether or not it can still be met."""

    def queue(self) -> EdfQueue:
        """Return an empty queue."""
        return EdfQueue()


class EdfQueue:
    """Queued requests by deadline. Mutable state: `_queued`."""

    def __init__(self) -> None:
        self._queued = RankedRequests()

    def add(self, queued: QueuedRequest) -> None:
        """Put the queued request behind those of its deadline."""
        self._queued.add(queued, (queued.request.deadline_s, 0))

    def remove(self, queued: QueuedRequest) -> None:
        """Let the queued request go; raises KeyError where it is not."""
        self._queued.remove(queued)

    def next(self, target: int, view: FleetView, at_s: float) -> Pick:
        """Return the queued request of the earliest deadline."""
        return Pick(self._queued.first(), reasons.EARLIEST_DEADLINE)

    def given_up(self) -> list[str]:
        """Tell nobody: this order gives nobody up."""
        return []

    @property
    def late_last_s(self) -> float:
        """0: a newcomer's own deadline decides whom it passes."""
        return 0.0

    def check(self) -> None:
        """Raise AssertionError unless the heap agrees with the queued requests."""
        self._queued.check()
