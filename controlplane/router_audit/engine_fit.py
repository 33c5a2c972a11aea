"""Finds the simulated engine whose outcomes are closest to those in a log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

import msgspec
from msgspec.structs import replace

from controlplane.router_audit.audited_fleet import AuditedFleet
from controlplane.router_audit.rebuild import Assumptions, RebuiltRun, run_as_logged
from planning.router_audit.logged_request import LoggedRequest
from routing.cost.cost_fit import CostFit, FittedCost
from routing.cost.cost_model import DecodeCost, PrefillCost
from simulator.engine_models.engine_profile import EngineProfile

ENGINE_MODELS = ("chunked", "colocated")
"""Prefill in chunks beside decodes, as current engines do, or prefill first."""
TRIAL_REQUESTS = 3000
"""Requests that decide which engine is closest."""
LEAST_OUTCOMES = 20
"""Logged outcomes from which a figure is fitted."""
_COARSE, _FINE = (1.0, 0.5, 2.0, 0.25, 4.0), (1.0, 0.7, 0.84, 1.19, 1.41)
"""Tried factors, then those around the closest. 1 is first, since the first of equally close ones is kept."""
_UNKNOWN_SPREAD, _SCALED_SPREAD, _FITTED_SPREADS = 2.0, 1.2, (1.05, 1.5)
"""Factor by which prefill times may differ: none in the log; scaled to times that include waits; limits of a fit's."""
Distance = Callable[[AuditedFleet, RebuiltRun], float]
"""How far a simulated run is from the log."""


class EngineFit(msgspec.Struct, frozen=True):
    """The closest engine, and how it was chosen."""

    assumed: Assumptions
    costs: str
    """profile (given), fitted (to prefills in the log), scaled (to the log's times), or assumed."""
    cache: str
    """fitted (to the log's cached tokens) or assumed."""
    spread: float
    """Factor by which prefill times may be shorter or longer."""


def fitted_engine(
    fleet: AuditedFleet, start: Assumptions, rule: str, *, given: bool, on_step: Callable[[], object]
) -> EngineFit:
    """Return the engine that is closest to the log, from `start` on. `given`: its costs are known and stay.

    `on_step` is called after each trial run.
    """
    part = fleet.first(TRIAL_REQUESTS)

    def closest(candidates: Sequence[Assumptions], distance: Distance) -> Assumptions:
        distances = []
        for candidate in candidates:
            distances.append(distance(part, run_as_logged(part, candidate, rule)))
            on_step()
        return candidates[distances.index(min(distances))]

    best, costs, cache = start, "profile" if given else "assumed", "assumed"
    spread = _SCALED_SPREAD if given else _UNKNOWN_SPREAD
    cost = None if given else fitted_cost(fleet.requests)
    if cost is not None:
        best, costs = _with_cost(start, cost.prefill), "fitted"
        spread = min(max(1 + cost.error, _FITTED_SPREADS[0]), _FITTED_SPREADS[1])
    if _known(part.requests, "ttft_s"):
        if costs == "assumed":
            costs, spread = "scaled", _SCALED_SPREAD
            for factors in (_COARSE, _FINE):
                best = closest([with_prefill(best, factor, best.name) for factor in factors], _ttft_distance)
        best = closest([replace(best, engine_model=model) for model in ENGINE_MODELS], _ttft_distance)
    if _known(part.requests, "cached_tokens"):
        best, cache = closest([with_cache(best, factor, best.name) for factor in _COARSE], _hit_distance), "fitted"
    return EngineFit(best, costs, cache, spread)


def fitted_cost(requests: Sequence[LoggedRequest]) -> FittedCost | None:
    """Return prefill costs from requests that had their engine to themselves; None if there are too few of them."""
    prior = EngineProfile()
    costs = CostFit(PrefillCost.of(prior.prefill_cost), DecodeCost.of(prior.decode_cost))
    busy_until: dict[str, float] = {}
    for request in requests:
        arrived_s, ttft_s, tokens, cached = (
            request.arrived_s or 0.0,
            request.ttft_s,
            request.prompt_tokens,
            request.cached_tokens,
        )
        lasts_s = ttft_s if request.total_s is None else request.total_s
        if not request.engine or lasts_s is None:
            continue
        until_s = busy_until.get(request.engine, 0.0)
        busy_until[request.engine] = max(until_s, arrived_s + lasts_s)
        if arrived_s >= until_s and ttft_s is not None and tokens and cached is not None and not request.estimated:
            costs.prefilled(request.engine, tokens, cached, ttft_s)
    fitted = costs.fitted()
    return fitted if fitted.better else None


def with_prefill(assumed: Assumptions, factor: float, name: str) -> Assumptions:
    """Return the assumptions with all prefill times multiplied."""
    old = PrefillCost.of(assumed.profile.prefill_cost)
    cost = PrefillCost(*(getattr(old, field) * factor for field in PrefillCost.__struct_fields__))
    return replace(_with_cost(assumed, cost), name=name)


def with_cache(assumed: Assumptions, factor: float, name: str) -> Assumptions:
    """Return the assumptions with a multiple of the cache's size."""
    profile = replace(assumed.profile, num_blocks=max(1, round(assumed.profile.num_blocks * factor)))
    return replace(assumed, name=name, profile=profile)


def _with_cost(assumed: Assumptions, cost: PrefillCost) -> Assumptions:
    prefill = {f"prefill_{field}": getattr(cost, field) for field in PrefillCost.__struct_fields__}
    return replace(assumed, profile=replace(assumed.profile, **prefill))


def _known(requests: Sequence[LoggedRequest], name: str) -> bool:
    return sum(getattr(request, name) is not None for request in requests) >= LEAST_OUTCOMES


def _hit_distance(fleet: AuditedFleet, run: RebuiltRun) -> float:
    pairs = zip(fleet.requests, run.records, strict=True)
    return abs(sum(one.cached_tokens - (two.hit_tokens or 0) for one, two in pairs if one.cached_tokens is not None))


def _ttft_distance(fleet: AuditedFleet, run: RebuiltRun) -> float:
    """Return the difference of the means, and a tenth of the mean difference, which decides between equal means."""
    pairs = zip(fleet.requests, run.records, strict=True)
    misses = [one.ttft_s - (two.ttft_s or 0.0) for one, two in pairs if one.ttft_s is not None]
    return abs(fmean(misses)) + fmean(map(abs, misses)) / 10
