"""Earliest deadline first: the textbook order, optimal while every request can be on time."""

from __future__ import annotations

import msgspec

from routing.queue.ranked_queue import RankedQueue
from routing.values import reasons


class Edf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Dispatches the queued request with the earliest deadline, even if it can no longer be met."""

    def queue(self) -> RankedQueue:
        """Return an empty queue."""
        return RankedQueue(lambda queued: (queued.request.deadline_s, 0), reasons.EARLIEST_DEADLINE)
