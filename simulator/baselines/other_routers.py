"""Placement rules of other routers, as their sources state them."""

from __future__ import annotations

import math
from random import Random
from statistics import fmean, pstdev
from typing import Annotated

import msgspec

from routing.ledger.fleet_view import FleetView
from routing.placements.candidate_scores import candidate, least, least_ttft
from routing.policy.setting import about, number
from routing.values import reasons
from routing.values.decision import Candidate, Choice
from routing.values.inference_request import InferenceRequest
from simulator.baselines.textbook_rules import two_choices


class AibrixPrefix(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Longest match on an engine not far above the mean load; fewest requests if loads are far apart or none fits.

    Source: AIBrix's gateway plug-in `prefix-cache` (research on peers §2.5, §2.13).
    """

    spread: Annotated[
        int,
        about("Spread", "Difference between the most and fewest requests above which only load counts."),
        number("requests", ge=0, le=100_000, usual=(4, 64)),
    ] = 16
    deviations: Annotated[
        float,
        about(
            "Load limit", "Skips a holder whose requests exceed the mean by more than this many standard deviations."
        ),
        number("σ", ge=0, le=100, usual=(1, 3)),
    ] = 2.0

    def choose(self, request: InferenceRequest, view: FleetView, now: float, rng: Random) -> Choice:
        """Return the engine with the longest match within the load limit, or the one with the fewest requests."""
        held = view.held(view.match(request))
        requests = {target: float(view.load.in_flight_requests[target]) for target in view.roster.accepting}
        loads = list(requests.values())
        if max(loads) - min(loads) <= self.spread:
            limit = fmean(loads) + self.deviations * pstdev(loads)
            holders = [target for target in view.roster.accepting if held[target] and requests[target] <= limit]
            longest = max((held[target] for target in holders), default=0)
            fitting = {target: requests[target] for target in holders if held[target] == longest}
            if fitting:
                return least(request, view, now, held, fitting, reasons.LONG_MATCH)
        return least(request, view, now, held, requests, reasons.FEWEST_REQUESTS)


class Preble(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Longest match if one covers enough of the prompt, else least time to first token.

    Source: Srivatsa et al. 2024, E2.
    """

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


class RayPrefix(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Longest match, or fewest blocks sent, while loads are close; otherwise the less loaded of two random engines.

    Source: Ray Serve LLM's PrefixCacheAffinityRouter (prefix_aware_router.py; research on peers §2.8, §2.13).
    """

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


class LlmdWeighted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Adds weighted scores for cached share, short queue, and free KV cache; the highest sum wins.

    Source: llm-d-router docs/architecture.md (research on peers §2.4, §2.13); the weights 3 : 2 : 2 are those of its
    published default profile.
    """

    prefix_weight: Annotated[
        float,
        about("Prefix weight", "Weight of the cached share of the prompt."),
        number("×", ge=0, le=1000, usual=(0, 5)),
    ] = 3.0
    queue_weight: Annotated[
        float,
        about("Queue weight", "Weight of a short queue: 1 for the shortest in the pool, 0 for the longest."),
        number("×", ge=0, le=1000, usual=(0, 5)),
    ] = 2.0
    kv_weight: Annotated[
        float, about("KV weight", "Weight of the free share of the KV cache."), number("×", ge=0, le=1000, usual=(0, 5))
    ] = 2.0
    # The reference engine's cache: 1,000,000 tokens in blocks of 512.
    kv_blocks: Annotated[
        int,
        about("KV cache size", "KV cache size of one engine, in blocks."),
        number("blocks", ge=1, le=100_000_000, usual=(1000, 100_000)),
    ] = 1953

    def choose(self, request: InferenceRequest, view: FleetView, now: float, rng: Random) -> Choice:
        """Return an engine with the highest score."""
        held = view.held(view.match(request))
        queues = [view.load.pending_requests[target] for target in view.roster.accepting]
        shortest, spread = min(queues), max(queues) - min(queues)
        scores = {}
        for target, queue in zip(view.roster.accepting, queues, strict=True):
            prefix = view.hit_tokens(request, target, held[target]) / max(request.prompt_tokens, 1)
            short = 1 - (queue - shortest) / spread if spread else 1.0
            free = 1 - min(view.load.active_blocks[target] / self.kv_blocks, 1.0)
            scores[target] = self.prefix_weight * prefix + self.queue_weight * short + self.kv_weight * free
        best = max(scores.values())
        target = rng.choice([item for item in view.roster.accepting if scores[item] == best])
        ranked = sorted(view.roster.accepting, key=lambda item: (item != target, -scores[item], item))[:3]
        scored = [candidate(request, view, item, held[item], now, -scores[item]) for item in ranked]
        return Choice(target, reasons.HIGHEST_SCORE, tuple(scored))


class ProductionStackLoadAware(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Weighs the cached share of the prompt against how far an engine's load is above the pool's mean.

    Source: vLLM's production-stack, its pull request 1035 (research on peers §2.6, §2.13).
    """

    beta: Annotated[
        float,
        about("β, load weight", "Cost of a load of twice the mean; 1 equals one fully cached prompt."),
        number("×", ge=0, le=1000, usual=(0.5, 2)),
    ] = 1.0

    def choose(self, request: InferenceRequest, view: FleetView, now: float, rng: Random) -> Choice:
        """Return the engine with the largest matched ÷ prompt − β × (load − mean) ÷ max(1, mean)."""
        held = view.held(view.match(request))
        mean = fmean([view.load.in_flight_requests[target] for target in view.roster.accepting])
        costs = {}
        for target in view.roster.accepting:
            matched = view.hit_tokens(request, target, held[target]) / max(request.prompt_tokens, 1)
            relative = (view.load.in_flight_requests[target] - mean) / max(1.0, mean)
            costs[target] = self.beta * relative - matched
        return least(request, view, now, held, costs, reasons.HIGHEST_SCORE)


class DynamoKv(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Fewest blocks: weighted uncached blocks plus all active ones; random by cost if the temperature is above 0.

    Source: Dynamo's KV router, docs/components/router (research on peers §2.3).
    """

    weight: Annotated[
        float,
        about("Prefill weight", "Weight of an uncached block relative to an active one."),
        number("×", ge=0, le=1000, usual=(0.5, 4)),
    ] = 1.0
    temperature: Annotated[
        float,
        about("Temperature", "0 selects the lowest cost; higher values spread requests over engines of similar cost."),
        number("× spread", ge=0, le=100, usual=(0, 1)),
    ] = 0.0

    def choose(self, request: InferenceRequest, view: FleetView, now: float, rng: Random) -> Choice:
        """Return the engine of least cost, or a random one with probabilities from a softmax of the costs scaled to
        0..1.
        """
        held = view.held(view.match(request))
        costs = {target: self._cost(request, view, target, held[target]) for target in view.roster.accepting}
        if self.temperature == 0.0:
            return least(request, view, now, held, costs, reasons.LEAST_BLOCKS)
        low, high = min(costs.values()), max(costs.values())
        # Equal costs have no spread to divide by.
        scale = (high - low or 1.0) * self.temperature
        # Relative to the lowest, so that no exponent is above 0 and none overflows.
        weights = [math.exp((low - cost) / scale) for cost in costs.values()]
        target = rng.choices(view.roster.accepting, weights)[0]
        chosen = candidate(request, view, target, held[target], now, costs[target])
        return Choice(target, reasons.SOFTMAX, _chosen_first(chosen, least(request, view, now, held, costs, "")))

    def _cost(self, request: InferenceRequest, view: FleetView, target: int, held: int) -> float:
        """Return weight × (pending + new uncached blocks) + active blocks + new blocks."""
        new = (request.prompt_tokens - view.hit_tokens(request, target, held)) / request.block_tokens
        pending = view.load.in_flight_tokens[target] / request.block_tokens
        return self.weight * (pending + new) + view.load.active_blocks[target] + new


def _chosen_first(chosen: Candidate, ranked: Choice) -> tuple[Candidate, ...]:
    others = [item for item in ranked.candidates if item.engine_id != chosen.engine_id]
    return (chosen, *others)
