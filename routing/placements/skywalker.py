"""SkyWalker inside one region (§3.2, §3.3, Algorithm 1): requests wait unbound until an engine has nothing pending.

Selective pushing by pending requests: the head of a first-come queue goes to the engine with the longest match, among
engines whose pending requests are within the limit.
"""

from __future__ import annotations

from random import Random
from typing import Annotated

import msgspec

from routing.ledger.fleet_view import FleetView
from routing.placements.candidate_scores import least
from routing.policy.setting import fixed
from routing.values import reasons
from routing.values.decision import CENTRAL, Choice
from routing.values.inference_request import InferenceRequest


class SkyWalker(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Holds requests until some engine has nothing pending, then picks the one that holds most of the prompt."""

    pending_limit: Annotated[int, fixed(ge=0, le=10_000)] = 0
    """Maximum requests without a first token at an engine that still accepts another."""

    def choose(self, request: InferenceRequest, view: FleetView, now: float, rng: Random) -> Choice:
        """Return the available engine with the longest match, CENTRAL if none is available."""
        held = view.held(view.match(request))
        pending = view.load.pending_requests
        free = {
            target: -float(held[target]) for target in view.roster.accepting if pending[target] <= self.pending_limit
        }
        if free:
            return least(request, view, now, held, free, reasons.FREE_MATCH)
        costs = {target: float(pending[target]) for target in view.roster.accepting}
        # For the record only: the request waits for any of them.
        fewest = least(request, view, now, held, costs, reasons.ALL_BUSY)
        return Choice(CENTRAL, reasons.ALL_BUSY, fewest.candidates)
