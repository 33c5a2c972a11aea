"""First come, first served."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from routing.fleet import FleetView
from routing.queue_order import Ticket


class Fifo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Grants the ticket that has waited longest."""

    def next(self, target: int, waiting: Sequence[Ticket], view: FleetView, now: float) -> int:
        """Return 0."""
        return 0
