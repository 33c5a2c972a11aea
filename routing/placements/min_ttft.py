"""Lowest estimated time to first token, each engine with only its own cache (Mooncake §4.1, without transfers)."""

from __future__ import annotations

from random import Random

import msgspec

from routing.ledger.fleet_view import FleetView
from routing.placements.candidate_scores import least_ttft
from routing.values import reasons
from routing.values.decision import Choice
from routing.values.inference_request import InferenceRequest


class MinTtft(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Picks the engine with the lowest wait plus prefill time, counting its cached blocks."""

    def choose(self, request: InferenceRequest, view: FleetView, now: float, rng: Random) -> Choice:
        """Return the engine with the lowest wait + compute time."""
        return least_ttft(request, view, now, view.match(request), reasons.LEAST_TTFT)
