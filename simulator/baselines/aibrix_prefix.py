"""AIBrix's prefix-cache routing (gateway plug-in `prefix-cache`, research on peers §2.5, §2.13)."""

from __future__ import annotations

from random import Random
from statistics import fmean, pstdev
from typing import Annotated

import msgspec
from msgspec import Meta

from routing.ledger.fleet_view import FleetView
from routing.placements.candidate_scores import blocks_held, least
from routing.values import reasons
from routing.values.decision import Choice
from routing.values.inference_request import InferenceRequest


class AibrixPrefix(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Longest match among engines not far above the mean load; fewest requests where loads are apart or nobody fits."""

    spread: Annotated[
        int,
        Meta(
            ge=0,
            le=100_000,
            title="Spread",
            description="Difference between most and fewest requests above which only load counts.",
            extra_json_schema={"x-unit": "requests", "x-usual": [4, 64]},
        ),
    ] = 16
    deviations: Annotated[
        float,
        Meta(
            ge=0,
            le=100,
            title="Load limit",
            description="Skips a holder with this many standard deviations more requests than the mean.",
            extra_json_schema={"x-unit": "σ", "x-usual": [1, 3]},
        ),
    ] = 2.0

    def choose(self, request: InferenceRequest, view: FleetView, now: float, rng: Random) -> Choice:
        """Return the longest holder within the load limit, or the engine with the fewest requests."""
        held = blocks_held(view, view.match(request))
        requests = {target: float(view.load.in_flight_requests[target]) for target in view.roster.accepting}
        loads = list(requests.values())
        if max(loads) - min(loads) <= self.spread:
            limit = fmean(loads) + self.deviations * pstdev(loads)
            holders = [target for target in view.roster.accepting if held[target] and requests[target] <= limit]
            longest = max((held[target] for target in holders), default=0)
            fitting = {target: requests[target] for target in holders if held[target] == longest}
            if fitting:
                return least(request, view, now, held, fitting, reasons.LONG_MATCH)
        return least(request, view, now, held, requests, reasons.FEWEST_REQUESTS)
