"""Ray Serve LLM's PrefixCacheAffinityRouter (prefix_aware_router.py; research on peers §2.8, §2.13)."""

from __future__ import annotations

from random import Random
from typing import Annotated

import msgspec

from routing.ledger.fleet_view import FleetView
from routing.placements.candidate_scores import least
from routing.policy.setting import about, number
from routing.values import reasons
from routing.values.decision import Choice
from routing.values.inference_request import InferenceRequest
from simulator.baselines.textbook_rules import two_choices


class RayPrefix(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Longest match, or fewest blocks sent, while loads are close; otherwise the less loaded of two random engines."""

    spread: Annotated[
        int,
        about("Spread", "Difference between the most and fewest requests above which caches are ignored."),
        number("requests", ge=0, le=100_000, usual=(4, 64)),
    ] = 10
    threshold: Annotated[
        float,
        about("Match threshold", "Minimum cached share of the prompt at which the longest match decides."),
        number("share", ge=0, le=1, usual=(0.05, 0.5)),
    ] = 0.1

    def choose(self, request: InferenceRequest, view: FleetView, now: float, rng: Random) -> Choice:
        """Return the engine that the rule chooses."""
        match = view.match(request)
        held = view.held(match)
        requests = [view.load.in_flight_requests[target] for target in view.roster.accepting]
        if max(requests) - min(requests) > self.spread:
            return two_choices(request, view, now, held, rng)
        if match.longest and match.longest * request.block_tokens >= self.threshold * request.prompt_tokens:
            longest = {target: -float(held[target]) for target in view.roster.accepting}
            return least(request, view, now, held, longest, reasons.LONG_MATCH)
        sent = {target: float(view.load.sent_blocks[target]) for target in view.roster.accepting}
        return least(request, view, now, held, sent, reasons.SMALLEST_TREE)
