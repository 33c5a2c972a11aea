"""Cost of a queued request on the engine that pulls it, compared with the best engine."""

from __future__ import annotations

from typing import NamedTuple

from routing.ledger.fleet_view import FleetView
from routing.ledger.reservations import Reservation


class Fit(NamedTuple):
    """Prefill times of one queued request relative to one engine, in seconds."""

    compute_s: float
    """On the engine that pulls."""
    best_s: float
    """On the engine with the lowest time, free or busy."""
    home_end_s: float
    """When the first of the faster engines would have finished it, inf if there is none."""


def fit(queued: Reservation, target: int, view: FleetView, now: float) -> Fit:
    """Return the request's prefill times on the target and on other engines, counting blocks on their way."""
    request, excluded = queued.request, queued.excluded
    groups = view.match(request).groups
    if not view.roster.alike or excluded:
        return _fit_by_engine(queued, target, view, now)
    compute_s = best_s = view.compute_s(request, target, 0)
    home_end_s = float("inf")
    bit = 1 << target
    for depth, (blocks, mask) in enumerate(groups):
        here_s = view.compute_s(request, target, view.hit_tokens(request, target, blocks))
        if not depth:
            best_s = min(here_s, compute_s)
        # Groups are ordered by depth: all before this one hold more than the target.
        if mask & bit:
            compute_s = here_s
            break
        home_end_s = min(home_end_s, _first_free(mask, view, now) + here_s)
    return Fit(compute_s, best_s, home_end_s)


def least_compute_s(queued: Reservation, view: FleetView) -> float:
    """Return the lowest prefill seconds over all accepting engines, of which at least one is required."""
    request = queued.request
    match = view.match(request)
    if view.roster.alike:
        target = view.roster.accepting[0]
        return view.compute_s(request, target, view.hit_tokens(request, target, match.longest))
    held = view.held(match)
    return min(
        view.compute_s(request, target, view.hit_tokens(request, target, held[target]))
        for target in view.roster.accepting
    )


def _fit_by_engine(queued: Reservation, target: int, view: FleetView, now: float) -> Fit:
    """Compare engine by engine, because speeds or trust differ, or some engines are excluded for this request."""
    request = queued.request
    held = view.held(view.match(request))
    seconds = {
        other: view.compute_s(request, other, view.hit_tokens(request, other, held[other]))
        for other in view.roster.accepting
        if other == target or view.roster.engine_ids[other] not in queued.excluded
    }
    here_s = seconds[target]
    ends = (max(view.load.ready_at[other], now) + cost_s for other, cost_s in seconds.items() if cost_s < here_s)
    return Fit(here_s, min(seconds.values()), min(ends, default=float("inf")))


def _first_free(mask: int, view: FleetView, now: float) -> float:
    """Return when the first of these targets becomes free."""
    first = float("inf")
    while mask:
        low = mask & -mask
        mask ^= low
        ready = view.load.ready_at[low.bit_length() - 1]
        first = min(first, ready)
    return max(first, now)
