"""The engine with the fewest requests, as serving systems without knowledge of caches balance them (SYMPHONY §3.3)."""

from __future__ import annotations

from random import Random

import msgspec

from routing.ledger.fleet_view import FleetView
from routing.placements.candidate_scores import least
from routing.values import reasons
from routing.values.decision import Choice
from routing.values.inference_request import InferenceRequest


class FewestRequests(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Picks the engine with the fewest in-flight requests."""

    def choose(self, request: InferenceRequest, view: FleetView, now: float, rng: Random) -> Choice:
        """Return the engine with the fewest in-flight requests; the prompt breaks ties."""
        requests = view.load.in_flight_requests
        costs = {target: float(requests[target]) for target in view.roster.accepting}
        return least(request, view, now, view.held(view.match(request)), costs, reasons.LEAST_LOADED)
