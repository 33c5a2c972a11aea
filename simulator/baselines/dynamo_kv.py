"""Dynamo's KV router: fewest blocks to prefill and to decode (docs/components/router, research on peers §2.3)."""

from __future__ import annotations

import math
from random import Random
from typing import Annotated

import msgspec

from routing.ledger.fleet_view import FleetView
from routing.placements.candidate_scores import candidate, least
from routing.policy.setting import about, number
from routing.values import reasons
from routing.values.decision import Candidate, Choice
from routing.values.inference_request import InferenceRequest


class DynamoKv(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Fewest blocks: weighted uncached blocks plus all active ones; random by cost if the temperature is above 0."""

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
