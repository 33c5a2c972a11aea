"""Least estimated time to first token, each engine with its own cache (Mooncake §4.1, without transfers)."""

from __future__ import annotations

from random import Random

import msgspec

from routing import reasons
from routing.decision import Choice
from routing.fleet import FleetView
from routing.inference_request import InferenceRequest
from routing.scoring import least_ttft


class MinTtft(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Picks the engine where waiting plus prefill, with what its cache holds, takes the least time."""

    def choose(self, request: InferenceRequest, view: FleetView, now: float, rng: Random) -> Choice:
        """Return the engine of least wait + compute."""
        return least_ttft(request, view, now, view.match(request), reasons.LEAST_TTFT)
