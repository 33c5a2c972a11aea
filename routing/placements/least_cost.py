"""Least wait + β × compute over the whole pool: affinity and balance in one rule at every load.

Weighing the compute time above the wait makes cache hits worth waiting for, and never switching the
rule under overload keeps them when they are needed most (research on scheduling §4, §5).
"""

from __future__ import annotations

from random import Random
from typing import Annotated

import msgspec
from msgspec import Meta

from routing import reasons
from routing.decision import Candidate, Choice
from routing.fleet import NEVER, FleetView, tie_salt
from routing.inference_request import InferenceRequest

_KEPT = 3
"""Candidates that a choice carries."""

_PROBES = 4
"""Engines looked at for an idle one, from a place that differs by prompt, before all are compared."""


class LeastCost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """argmin of wait + β × compute; only holders of the prefix and the least waiting other engine can win."""

    beta: Annotated[float, Meta(ge=0.01, le=1000, description="Weight of compute time against waiting time.")] = 8.0

    def choose(self, request: InferenceRequest, view: FleetView, now: float, rng: Random) -> Choice:
        """Return the engine of least cost."""
        beta = self.beta
        ready_at = view.ready_at
        salt = tie_salt(request)
        scored: list[tuple[float, int, int, float, int]] = []
        others = view.accepting_mask
        for blocks, mask in view.match(request).groups:
            holders = mask & others
            others &= ~mask
            while holders:
                low = holders & -holders
                holders ^= low
                target = low.bit_length() - 1
                hit = view.hit_tokens(request, target, blocks)
                compute = view.compute_s(request, target, hit)
                wait = max(ready_at[target] - now, 0.0)
                scored.append((wait + beta * compute, target ^ salt, target, compute, hit))
        for target in _least_waiting(view, others, salt, now):
            compute = view.compute_s(request, target, 0)
            wait = max(ready_at[target] - now, 0.0)
            scored.append((wait + beta * compute, target ^ salt, target, compute, 0))
        scored.sort()
        kept = tuple(
            [
                Candidate(view.engine_ids[target], hit, max(ready_at[target] - now, 0.0), compute, cost)
                for cost, _, target, compute, hit in scored[:_KEPT]
            ]
        )
        return Choice(scored[0][2], reasons.LEAST_COST, kept)


def _least_waiting(view: FleetView, others: int, salt: int, now: float) -> tuple[int, ...]:
    """Return the non-holders that can win: the least waiting one, or all where speeds or trust differ."""
    if not others:
        return ()
    accepting = view.accepting
    if not view.uniform:
        return tuple(target for target in accepting if others >> target & 1)
    ready_at = view.ready_at
    first = salt % len(accepting)
    for target in accepting[first : first + _PROBES]:
        if ready_at[target] <= now and others >> target & 1:
            return (target,)
    least, chosen = NEVER, -1
    for target in accepting:
        ready = ready_at[target]
        if ready < least and others >> target & 1:
            least, chosen = ready, target
    return (chosen,)
