"""The rule of the cache-aware routers derived from SGLang's: balance uneven loads, else use a long match, else spread.

Sources: smg model_gateway/src/policies/cache_aware.rs and vllm-project/router, which use the same rule with different
thresholds (research on peers §2.1, §2.6, §2.13).
"""

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

RelativeSpread = Annotated[
    float,
    about(
        "Relative spread", "Loads are far apart only if the most requests exceed the fewest by more than this factor."
    ),
    number("×", ge=1, le=1000, usual=(1, 2)),
]


class CacheAware(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The rule with its thresholds; each router has a different relative spread."""

    threshold: Annotated[
        float,
        about("Match threshold", "Cached share of the prompt above which the longest match decides."),
        number("share", ge=0, le=1, usual=(0.3, 0.7)),
    ] = 0.5
    absolute_spread: Annotated[
        int,
        about("Absolute spread", "Loads are far apart only if the most and fewest requests differ by more than this."),
        number("requests", ge=0, le=100_000, usual=(16, 128)),
    ] = 32
    relative_spread: RelativeSpread

    def choose(self, request: InferenceRequest, view: FleetView, now: float, rng: Random) -> Choice:
        """Return the engine that the rule chooses.

        If the most and the fewest in-flight requests differ by more than `absolute_spread` and by a factor above
        `relative_spread`, choose the engine with the fewest. Otherwise choose the longest match if it covers more than
        `threshold` of the prompt, or else the engine that was sent the fewest blocks.
        """
        match = view.match(request)
        held = view.held(match)
        requests = {target: float(view.load.in_flight_requests[target]) for target in view.roster.accepting}
        most, fewest = max(requests.values()), min(requests.values())
        if most - fewest > self.absolute_spread and most > self.relative_spread * fewest:
            return least(request, view, now, held, requests, reasons.FEWEST_REQUESTS)
        if match.longest * request.block_tokens > self.threshold * request.prompt_tokens:
            costs = {target: -float(held[target]) for target in view.roster.accepting}
            return least(request, view, now, held, costs, reasons.LONG_MATCH)
        # SGLang's router compares the sizes of its own trees, which grow by what it sends.
        sent = {target: float(view.load.sent_blocks[target]) for target in view.roster.accepting}
        return least(request, view, now, held, sent, reasons.SMALLEST_TREE)


class SglangCacheAware(CacheAware, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Longest match if loads are close and the match is long enough. Else fewest requests, or fewest blocks sent.

    The thresholds are those of the published comparisons (0.5, 32, 1.0001). The current gateway (smg) has other
    defaults: threshold 0.3, absolute spread 64, relative spread 1.5.
    """

    relative_spread: RelativeSpread = 1.0001


class VllmCacheAware(CacheAware, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The rule of sglang_cache_aware with the defaults of vllm-project/router: it balances at larger differences."""

    relative_spread: RelativeSpread = 1.1
