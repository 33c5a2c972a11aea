"""Priority classes: lowest number first, as in vLLM. First come, first served within a class."""

from __future__ import annotations

import msgspec

from routing.queue.ranked_queue import RankedQueue
from routing.values import reasons


class Priority(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Dispatches the queued request with the lowest priority number; among equals, the one that arrived first."""

    def queue(self) -> RankedQueue:
        """Return an empty queue."""
        return RankedQueue(lambda queued: (queued.request.priority, queued.request.arrived_s), reasons.HIGHEST_PRIORITY)
