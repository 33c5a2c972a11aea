"""Earliest deadline first: the textbook order, right while everything can be on time."""

from __future__ import annotations

import msgspec

from routing.queue.ranked_queue import RankedQueue
from routing.values import reasons


class Edf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Dispatches the queued request whose deadline comes first, whether or not it can still be met."""

    def queue(self) -> RankedQueue:
        """Return an empty queue."""
        return RankedQueue(lambda queued: (queued.request.deadline_s, 0), reasons.EARLIEST_DEADLINE)
