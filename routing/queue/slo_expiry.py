"""Deadlines after which queued requests become pointless, so that they are rejected then, not when their turn comes."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from routing.ledger.fleet_view import NEVER

_SWEEP_ABOVE = 64


class LastChances:
    """Request id → the time at which to check it again.

    Mutable state: `_due` (request id → time) and a heap of (time, request id), including outdated entries.
    """

    def __init__(self) -> None:
        self._due: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._due)

    def set(self, request_id: str, moment: float) -> None:
        """Check the request at this time only. NEVER disables the check."""
        if moment == NEVER:
            self._due.pop(request_id, None)
            return
        self._due[request_id] = moment
        heappush(self._heap, (moment, request_id))
        # Outdated entries are dropped in bulk, so that the heap stays proportional to the requests.
        if len(self._heap) > 2 * len(self._due) + _SWEEP_ABOVE:
            self._heap = [(due, name) for name, due in self._due.items()]
            heapify(self._heap)

    def forget(self, request_id: str) -> None:
        """Stop checking the request. Unknown ids are ignored."""
        self._due.pop(request_id, None)

    def next_moment(self) -> float:
        """Return when the next request is due for a check, NEVER if there is none."""
        heap = self._heap
        while heap and self._due.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else NEVER

    def due(self, now: float) -> Iterator[str]:
        """Yield the due requests, earliest first, and forget them."""
        while self.next_moment() <= now:
            request_id = heappop(self._heap)[1]
            del self._due[request_id]
            yield request_id

    def check(self) -> None:
        """Raise AssertionError unless every request will be checked."""
        listed = set(self._heap)
        for request_id, moment in self._due.items():
            if (moment, request_id) not in listed:
                raise AssertionError(f"{request_id} is never checked")
        if len(self._heap) > 2 * len(self._due) + _SWEEP_ABOVE + 1:
            raise AssertionError("entries of requests that are gone pile up")
