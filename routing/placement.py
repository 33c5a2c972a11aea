"""The first of the two protocols: choosing an engine for one request."""

from __future__ import annotations

from random import Random
from typing import Protocol

from routing.decision import Choice
from routing.fleet import FleetView
from routing.inference_request import InferenceRequest


class Placement(Protocol):
    """Chooses a target among `view.accepting`, which is never empty; keeps no copy of the fleet."""

    def choose(self, request: InferenceRequest, view: FleetView, now: float, rng: Random) -> Choice:
        """Return the target for the request, with a reason and the best few candidates."""
        ...
