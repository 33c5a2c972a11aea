"""A random engine with equal probability: the baseline of Mooncake Fig. 5."""

from __future__ import annotations

from random import Random

import msgspec

from routing.ledger.fleet_view import FleetView
from routing.placements.candidate_scores import candidate
from routing.values import reasons
from routing.values.decision import Choice
from routing.values.inference_request import InferenceRequest


class RandomEngine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Picks an engine at random, regardless of cache and load."""

    def choose(self, request: InferenceRequest, view: FleetView, now: float, rng: Random) -> Choice:
        """Return a random engine."""
        target = rng.choice(view.roster.accepting)
        blocks = view.match(request).blocks(target)
        return Choice(target, reasons.RANDOM, (candidate(request, view, target, blocks, now),))
