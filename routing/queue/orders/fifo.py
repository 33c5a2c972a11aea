"""First come, first served."""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from routing.ledger.fleet_view import FleetView
from routing.ledger.reservations import Reservation
from routing.queue.queue_order import Pick
from routing.values import reasons


class Fifo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Dispatches the queued request that has waited longest."""

    def queue(self) -> FifoQueue:
        """Return an empty queue."""
        return FifoQueue()


class FifoQueue:
    """Queued requests in order of arrival. Mutable state: `_queued`."""

    def __init__(self) -> None:
        # A plain dict would scan over all removed entries at its head.
        self._queued: OrderedDict[str, Reservation] = OrderedDict()

    def add(self, queued: Reservation) -> None:
        """Add the queued request at the end."""
        self._queued[queued.request.request_id] = queued

    def remove(self, queued: Reservation) -> None:
        """Remove the queued request. Raises KeyError if it is absent."""
        del self._queued[queued.request.request_id]

    def next(self, target: int, view: FleetView, at_s: float) -> Pick:
        """Return the first queued request."""
        return Pick(next(iter(self._queued.values())), reasons.ARRIVED_FIRST)

    def given_up(self) -> list[str]:
        """Return an empty list: this order gives up no request."""
        return []

    @property
    def late_last_s(self) -> float:
        """Return 0: no request is skipped."""
        return 0.0

    def check(self) -> None:
        """Raise AssertionError unless each queued request is stored under its own id."""
        if any(queued.request.request_id != request_id for request_id, queued in self._queued.items()):
            raise AssertionError("a queued request is under another id")
