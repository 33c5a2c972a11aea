"""Rules that ignore caches, for holdbacks and comparison: by uncached tokens in flight, and each engine in turn."""

from __future__ import annotations

from random import Random

import msgspec

from routing.ledger.fleet_view import FleetView, tie_salt
from routing.placements.candidate_scores import candidate
from routing.values import reasons
from routing.values.decision import Choice
from routing.values.inference_request import InferenceRequest


class LeastLoaded(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Picks the engine with the fewest pending uncached tokens, waiting and prefilling; blind to caches otherwise."""

    def choose(self, request: InferenceRequest, view: FleetView, now: float, rng: Random) -> Choice:
        """Return the least loaded engine."""
        tokens = view.load.in_flight_tokens
        least = min([tokens[item] for item in view.roster.accepting])
        ties = [item for item in view.roster.accepting if tokens[item] == least]
        target = ties[tie_salt(request) % len(ties)]
        blocks = view.match(request).blocks(target)
        scored = candidate(request, view, target, blocks, now, cost=float(tokens[target]))
        return Choice(target, reasons.LEAST_LOADED, (scored,))


class RoundRobin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Picks the accepting engines in turn, in the order of their ids."""

    def choose(self, request: InferenceRequest, view: FleetView, now: float, rng: Random) -> Choice:
        """Return the next engine in turn."""
        # The router's count, because a placement keeps no state of its own between requests.
        target = view.roster.accepting[view.load.decisions % len(view.roster.accepting)]
        blocks = view.match(request).blocks(target)
        return Choice(target, reasons.ROUND_ROBIN, (candidate(request, view, target, blocks, now),))
