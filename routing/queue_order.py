"""The second of the two protocols: which waiting ticket goes next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from routing.fleet import FleetView
from routing.inference_request import InferenceRequest


class Ticket(msgspec.Struct, frozen=True, gc=False):
    """A request that waits at the gateway, with the estimated prefill time on its target."""

    request: InferenceRequest
    compute_s: float


class QueueOrder(Protocol):
    """Picks one of the tickets bound to a target that can take work."""

    def next(self, target: int, waiting: Sequence[Ticket], view: FleetView, now: float) -> int:
        """Return the position in `waiting` (never empty, in order of arrival) of the ticket to grant."""
        ...
