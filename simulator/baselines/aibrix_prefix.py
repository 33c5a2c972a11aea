"""AIBrix's prefix-cache routing (gateway plug-in `prefix-cache`, research on peers §2.5, §2.13)."""

from __future__ import annotations

from random import Random
from statistics import fmean, pstdev
from typing import Annotated

import msgspec

from routing.ledger.fleet_view import FleetView
from routing.placements.candidate_scores import least
from routing.policy.setting import about, number
from routing.values import reasons
from routing.values.decision import Choice
from routing.values.inference_request import InferenceRequest


class AibrixPrefix(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Longest match on an engine not far above the mean load; fewest requests if loads are far apart or none fits."""

    spread: Annotated[
        int,
        about("Spread", "Difference between the most and fewest requests above which only load counts."),
        number("requests", ge=0, le=100_000, usual=(4, 64)),
    ] = 16
    deviations: Annotated[
        float,
        about(
            "Load limit", "Skips a holder whose requests exceed the mean by more than this many standard deviations."
        ),
        number("σ", ge=0, le=100, usual=(1, 3)),
    ] = 2.0

    def choose(self, request: InferenceRequest, view: FleetView, now: float, rng: Random) -> Choice:
        """Return the engine with the longest match within the load limit, or the one with the fewest requests."""
        held = view.held(view.match(request))
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
