"""The loadaware routing of vLLM's production-stack (its pull request 1035; research on peers §2.6, §2.13)."""

from __future__ import annotations

from random import Random
from statistics import fmean
from typing import Annotated

import msgspec

from routing.ledger.fleet_view import FleetView
from routing.placements.candidate_scores import least
from routing.policy.setting import about, number
from routing.values import reasons
from routing.values.decision import Choice
from routing.values.inference_request import InferenceRequest


class ProductionStackLoadAware(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Weighs the cached share of the prompt against how far an engine's load is above the pool's mean."""

    beta: Annotated[
        float,
        about("β, load weight", "Cost of a load of twice the mean; 1 equals one fully cached prompt."),
        number("×", ge=0, le=1000, usual=(0.5, 2)),
    ] = 1.0

    def choose(self, request: InferenceRequest, view: FleetView, now: float, rng: Random) -> Choice:
        """Return the engine with the largest matched ÷ prompt − β × (load − mean) ÷ max(1, mean)."""
        held = view.held(view.match(request))
        mean = fmean([view.load.in_flight_requests[target] for target in view.roster.accepting])
        costs = {}
        for target in view.roster.accepting:
            matched = view.hit_tokens(request, target, held[target]) / max(request.prompt_tokens, 1)
            relative = (view.load.in_flight_requests[target] - mean) / max(1.0, mean)
            costs[target] = self.beta * relative - matched
        return least(request, view, now, held, costs, reasons.HIGHEST_SCORE)
