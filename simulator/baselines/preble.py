"""Preble's rule (Srivatsa et al. 2024, E2): exploit a long cached prefix, else explore the engine of least time."""

from __future__ import annotations

from random import Random
from typing import Annotated

import msgspec

from routing.ledger.fleet_view import FleetView
from routing.placements.candidate_scores import least, least_ttft
from routing.policy.setting import about, number
from routing.values import reasons
from routing.values.decision import Choice
from routing.values.inference_request import InferenceRequest


class Preble(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Longest match if one covers enough of the prompt, else least time to first token."""

    threshold: Annotated[
        float,
        about("Match threshold", "Cached share of the prompt above which the longest match decides."),
        number("share", ge=0, le=1, usual=(0.3, 0.7)),
    ] = 0.5

    def choose(self, request: InferenceRequest, view: FleetView, now: float, rng: Random) -> Choice:
        """Return the holder of the longest match with the shortest wait, or the engine of least wait + compute time."""
        match = view.match(request)
        if match.longest * request.block_tokens <= self.threshold * request.prompt_tokens:
            return least_ttft(request, view, now, match, reasons.LEAST_TTFT)
        holders = match.groups[0][1]
        waits = {target: view.wait_s(target, now) for target in view.roster.accepting if holders >> target & 1}
        return least(request, view, now, view.held(match), waits, reasons.LONG_MATCH)
