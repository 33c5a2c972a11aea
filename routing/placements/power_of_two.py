"""The power of two choices (Mitzenmacher 2001): draw two random engines, pick the one with fewer requests."""

from __future__ import annotations

from random import Random

import msgspec

from routing.ledger.fleet_view import FleetView
from routing.placements.candidate_scores import least
from routing.values import reasons
from routing.values.decision import Choice
from routing.values.inference_request import InferenceRequest


class PowerOfTwo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Draws two engines at random and picks the one with fewer in-flight requests."""

    def choose(self, request: InferenceRequest, view: FleetView, now: float, rng: Random) -> Choice:
        """Return the less loaded of two engines drawn without replacement, or the only engine of the pool."""
        held = view.held(view.match(request))
        return two_choices(request, view, now, held, rng)


def two_choices(request: InferenceRequest, view: FleetView, now: float, held: list[int], rng: Random) -> Choice:
    """Return the less loaded of two random engines. `held` is indexed by target."""
    drawn = rng.sample(view.roster.accepting, min(2, len(view.roster.accepting)))
    requests = {target: float(view.load.in_flight_requests[target]) for target in drawn}
    return least(request, view, now, held, requests, reasons.TWO_CHOICES)
