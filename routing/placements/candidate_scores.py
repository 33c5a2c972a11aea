"""Scores of engines for one request, as reported by every placement."""

from __future__ import annotations

from collections.abc import Mapping

from kvstore.index.prefix_match import PrefixMatch
from routing.ledger.fleet_view import FleetView, tie_salt
from routing.values.decision import Candidate, Choice
from routing.values.inference_request import InferenceRequest

KEPT = 3
"""Maximum candidates in a choice."""


def candidate(
    request: InferenceRequest, view: FleetView, target: int, blocks: int, now: float, cost: float | None = None
) -> Candidate:
    """Return the target's scores with `blocks` matched. The cost defaults to the estimated TTFT in seconds."""
    hit_tokens = view.hit_tokens(request, target, blocks)
    wait_s = view.wait_s(target, now)
    compute_s = view.compute_s(request, target, hit_tokens)
    return Candidate(
        view.roster.engine_ids[target],
        hit_tokens,
        wait_s,
        compute_s,
        wait_s + compute_s if cost is None else cost,
        blocks,
    )


def least(
    request: InferenceRequest, view: FleetView, now: float, held: list[int], costs: Mapping[int, float], reason: str
) -> Choice:
    """Return the target with the lowest cost, ties by the prompt's salt, with the next best as candidates.

    `costs` must not be empty. `held` is indexed by target.
    """
    salt = tie_salt(request)
    ranked = sorted([(cost, target ^ salt, target) for target, cost in costs.items()])[:KEPT]
    scored = tuple([candidate(request, view, target, held[target], now, cost) for cost, _, target in ranked])
    return Choice(ranked[0][2], reason, scored)


def least_ttft(request: InferenceRequest, view: FleetView, now: float, match: PrefixMatch, reason: str) -> Choice:
    """Return the target with the lowest wait + compute time. The prompt's salt breaks ties between idle engines."""
    held = view.held(match)
    computes: dict[int, float] = {}
    costs: dict[int, float] = {}
    for target in view.roster.accepting:
        blocks = held[target]
        # Engines that are alike take the same time for the same hit.
        compute_s = computes.get(blocks) if view.roster.alike else None
        if compute_s is None:
            compute_s = view.compute_s(request, target, view.hit_tokens(request, target, blocks))
            computes[blocks] = compute_s
        costs[target] = view.wait_s(target, now) + compute_s
    return least(request, view, now, held, costs, reason)
