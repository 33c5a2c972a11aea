"""Queued requests by rank, lowest first: a heap with lazy removal."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush

from routing.ledger.fleet_view import FleetView
from routing.ledger.reservations import Reservation
from routing.queue.queue_order import Pick

Rank = tuple[float, float]
"""Sort key of queued requests. Equal ranks are ordered by arrival."""


class RankedRequests:
    """A priority queue with removal.

    Mutable state: `compute_s`, `_number_of` (request id → arrival number), `_heap` (rank, number, request; an entry is
    dead if its number is no longer its request's), and `_numbers`.
    """

    def __init__(self) -> None:
        self.compute_s = 0.0
        """Total estimated prefill seconds of all queued requests."""
        self._number_of: dict[str, int] = {}
        self._heap: list[tuple[Rank, int, Reservation]] = []
        self._numbers = 0

    def __len__(self) -> int:
        return len(self._number_of)

    def __contains__(self, queued: Reservation) -> bool:
        return queued.request.request_id in self._number_of

    def add(self, queued: Reservation, rank: Rank) -> None:
        """Add a queued request."""
        self._numbers += 1
        self.compute_s += queued.compute_s
        self._number_of[queued.request.request_id] = self._numbers
        heappush(self._heap, (rank, self._numbers, queued))
        # Dead entries are dropped in bulk, so that the heap stays proportional to the requests.
        if len(self._heap) > 2 * len(self._number_of) + 64:
            self._heap = [entry for entry in self._heap if self._is_current(entry)]
            heapify(self._heap)

    def remove(self, queued: Reservation) -> None:
        """Remove a queued request. Raises KeyError if it is absent."""
        del self._number_of[queued.request.request_id]
        # An empty queue resets the sum, so that rounding errors do not add up.
        self.compute_s = self.compute_s - queued.compute_s if self._number_of else 0.0

    def first(self) -> Reservation:
        """Return the queued request with the lowest rank. Raises IndexError if empty."""
        while not self._is_current(self._heap[0]):
            heappop(self._heap)
        return self._heap[0][2]

    def check(self) -> None:
        """Raise AssertionError unless every queued request has exactly one valid entry."""
        current = [entry[2].request.request_id for entry in self._heap if self._is_current(entry)]
        seconds = sum(entry[2].compute_s for entry in self._heap if self._is_current(entry))
        if abs(seconds - self.compute_s) > 1e-6:
            raise AssertionError(f"{self.compute_s} s are not the {seconds} s of the queued requests")
        if sorted(current) != sorted(self._number_of):
            raise AssertionError(f"entries {current} are not the queued requests {list(self._number_of)}")

    def _is_current(self, entry: tuple[Rank, int, Reservation]) -> bool:
        return self._number_of.get(entry[2].request.request_id) == entry[1]


class RankedQueue:
    """The queue of an order that ranks each request once, on arrival. Mutable state: `_queued`."""

    def __init__(self, rank: Callable[[Reservation], Rank], reason: str) -> None:
        self._rank = rank
        self._reason = reason
        self._queued = RankedRequests()

    def add(self, queued: Reservation) -> None:
        """Add the queued request after those of equal rank."""
        self._queued.add(queued, self._rank(queued))

    def remove(self, queued: Reservation) -> None:
        """Remove the queued request. Raises KeyError if it is absent."""
        self._queued.remove(queued)

    def next(self, target: int, view: FleetView, at_s: float) -> Pick:
        """Return the queued request with the lowest rank."""
        return Pick(self._queued.first(), self._reason)

    def given_up(self) -> list[str]:
        """Return an empty list: such an order gives up no request."""
        return []

    @property
    def late_last_s(self) -> float:
        """Return 0: a newcomer's own rank decides which requests it overtakes."""
        return 0.0

    def check(self) -> None:
        """Raise AssertionError unless the heap agrees with the queued requests."""
        self._queued.check()
