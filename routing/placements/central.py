"""Central queue: requests wait unbound until an engine pulls them (research on scheduling §5)."""

from __future__ import annotations

from random import Random

import msgspec

from routing.ledger.fleet_view import FleetView
from routing.placements.least_cost import LeastCost
from routing.values import reasons
from routing.values.decision import CENTRAL, Choice
from routing.values.inference_request import InferenceRequest

_AT_ONCE = LeastCost()


class Central(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Leaves every request in the pool's queue. A request that cannot wait is placed by `least_cost`."""

    def choose(self, request: InferenceRequest, view: FleetView, now: float, rng: Random) -> Choice:
        """Return CENTRAL, with the currently cheapest engines as candidates."""
        return Choice(CENTRAL, reasons.HELD, _AT_ONCE.choose(request, view, now, rng).candidates)
