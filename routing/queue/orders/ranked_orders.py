"""Orders by one rank of each request: its deadline (optimal while all can be on time), or its priority."""

from __future__ import annotations

import msgspec

from routing.queue.ranked_queue import RankedQueue
from routing.values import reasons


class Edf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Dispatches the queued request with the earliest deadline, even if it can no longer be met."""

    def queue(self) -> RankedQueue:
        """Return an empty queue."""
        return RankedQueue(lambda queued: (queued.request.deadline_s, 0), reasons.EARLIEST_DEADLINE)


class Priority(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Dispatches the queued request with the lowest priority number; among equals, the one that arrived first."""

    def queue(self) -> RankedQueue:
        """Return an empty queue."""
        return RankedQueue(lambda queued: (queued.request.priority, queued.request.arrived_s), reasons.HIGHEST_PRIORITY)
