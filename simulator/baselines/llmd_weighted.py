"""llm-d's weighted scorers: prefix, queue, and KV use, each 0..1. The highest sum wins; ties are random.

Source: llm-d-router docs/architecture.md (research on peers §2.4, §2.13); the weights 3 : 2 : 2 are those of its
published default profile.
"""

from __future__ import annotations

from random import Random
from typing import Annotated

import msgspec

from routing.ledger.fleet_view import FleetView
from routing.placements.candidate_scores import candidate
from routing.policy.setting import about, number
from routing.values import reasons
from routing.values.decision import Choice
from routing.values.inference_request import InferenceRequest


class LlmdWeighted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Adds weighted scores for cached share, short queue, and free KV cache; the highest sum wins."""

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
