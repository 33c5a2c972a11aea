"""First come, first served among those that can still be on time; hopeless tickets go last.

Past saturation FIFO makes every request late at once; passing over the few that are late anyway
keeps the rest on time (research on scheduling §5).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from routing.fleet import FleetView
from routing.queue_order import Ticket


class Shed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Grants the oldest ticket whose first token would still meet its SLO, else the oldest."""

    def next(self, target: int, waiting: Sequence[Ticket], view: FleetView, now: float) -> int:
        """Return the position of the first feasible ticket, 0 where none is."""
        for position, ticket in enumerate(waiting):
            if now + ticket.compute_s <= ticket.request.deadline_s:
                return position
        return 0
