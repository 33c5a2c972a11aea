"""Each engine in turn, regardless of cache and load: the baseline."""

from __future__ import annotations

from random import Random

import msgspec

from routing.ledger.fleet_view import FleetView
from routing.placements.candidate_scores import candidate
from routing.values import reasons
from routing.values.decision import Choice
from routing.values.inference_request import InferenceRequest


class RoundRobin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Picks the accepting engines in turn, in the order of their ids."""

    def choose(self, request: InferenceRequest, view: FleetView, now: float, rng: Random) -> Choice:
        """Return the next engine in turn."""
        # The router's count, because a placement keeps no state of its own between requests.
        target = view.roster.accepting[view.load.decisions % len(view.roster.accepting)]
        blocks = view.match(request).blocks(target)
        return Choice(target, reasons.ROUND_ROBIN, (candidate(request, view, target, blocks, now),))
