"""Finds the simulated engine whose outcomes are closest to those in a log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

import msgspec

from controlplane.router_audit.audited_fleet import AuditedFleet
from controlplane.router_audit.rebuild import Assumptions, RebuiltRun, run_as_logged
from planning.router_audit.logged_request import LoggedRequest
from routing.cost.cost_fit import CostFit, FittedCost
from routing.cost.cost_model import DecodeCost, PrefillCost
from simulator.engine_models.engine_profile import EngineProfile

ENGINE_MODELS = ("chunked", "colocated")
"""Prefill in chunks beside decodes, as current engines do, or prefill first."""
FACTORS = (1.0, 0.5, 2.0, 0.25, 4.0)
"""Tried factors of prefill time and cache size; 1 first, since equal results keep the first."""
TRIAL_REQUESTS = 3000
"""Requests that decide which engine is closest."""
LEAST_OUTCOMES = 20
"""Logged outcomes from which a figure is fitted."""
_UNKNOWN_SPREAD = 0.25
"""Relative uncertainty of prefill times that the log does not show."""
_SPREADS = (0.05, 0.5)

Distance = Callable[[AuditedFleet, RebuiltRun], float]
"""How far a simulated run is from the log."""


class EngineFit(msgspec.Struct, frozen=True):
    """The closest engine, and how it was chosen."""

    assumed: Assumptions
    costs: str
    """profile (given), fitted (from prefills in the log), scaled (by the log's times), or assumed."""
    cache: str
    """fitted (by the log's cached tokens) or assumed."""
    spread: float
    """Relative uncertainty of prefill times."""


def fitted_engine(
    fleet: AuditedFleet, start: Assumptions, rule: str, *, given: bool, on_step: Callable[[], None]
) -> EngineFit:
    """Return the engine that is closest to the log, from `start` on. `given`: its costs are known and stay.

    `on_step` is called after each trial run.
    """
    part = fleet.first(TRIAL_REQUESTS)
    fit = EngineFit(start, "profile" if given else "assumed", "assumed", _UNKNOWN_SPREAD)

    def closest(
        candidates: Sequence[Assumptions], distance: Callable[[AuditedFleet, RebuiltRun], float]
    ) -> Assumptions:
        distances = []
        for candidate in candidates:
            distances.append(distance(part, run_as_logged(part, candidate, rule)))
            on_step()
        return candidates[distances.index(min(distances))]

    cost = None if given else fitted_cost(fleet.requests)
    if cost is not None:
        fit = EngineFit(_with_cost(start, cost.prefill), "fitted", "assumed", _bounded(cost.error))
    if _known(part.requests, "cached_tokens"):
        fit = msgspec.structs.replace(fit, assumed=closest(_cache_sizes(fit.assumed), _hit_distance), cache="fitted")
    if _known(part.requests, "ttft_s"):
        if fit.costs == "assumed":
            fit = msgspec.structs.replace(fit, assumed=closest(_speeds(fit.assumed), _ttft_distance), costs="scaled")
        fit = msgspec.structs.replace(fit, assumed=closest(_models(fit.assumed), _ttft_distance))
    return fit


def fitted_cost(requests: Sequence[LoggedRequest]) -> FittedCost | None:
    """Return prefill costs from requests that had their engine to themselves; None if there are too few of them."""
    prior = EngineProfile()
    costs = CostFit(PrefillCost.of(prior.prefill_cost), DecodeCost.of(prior.decode_cost))
    busy_until: dict[str, float] = {}
    for request in requests:
        arrived_s, ttft_s = request.arrived_s or 0.0, request.ttft_s
        idle = arrived_s >= busy_until.get(request.engine, 0.0)
        lasts_s = request.total_s if request.total_s is not None else ttft_s
        if not request.engine or lasts_s is None:
            continue
        busy_until[request.engine] = max(busy_until.get(request.engine, 0.0), arrived_s + lasts_s)
        counted = request.prompt_tokens is not None and not request.estimated
        if idle and counted and ttft_s is not None and request.cached_tokens is not None:
            costs.prefilled(request.engine, request.prompt_tokens or 1, request.cached_tokens, ttft_s)
    fitted = costs.fitted()
    return fitted if fitted.better else None


def _known(requests: Sequence[LoggedRequest], name: str) -> bool:
    return sum(getattr(request, name) is not None for request in requests) >= LEAST_OUTCOMES


def _bounded(error: float) -> float:
    low, high = _SPREADS
    return min(high, max(low, error))


def _with_cost(assumed: Assumptions, cost: PrefillCost) -> Assumptions:
    profile = msgspec.structs.replace(
        assumed.profile,
        prefill_base_s=cost.base_s,
        prefill_per_token_s=cost.per_token_s,
        prefill_per_token_squared_s=cost.per_token_squared_s,
        prefill_per_hit_token_s=cost.per_hit_token_s,
    )
    return msgspec.structs.replace(assumed, profile=profile)


def with_prefill(assumed: Assumptions, factor: float, name: str) -> Assumptions:
    """Return the assumptions with all prefill times multiplied."""
    old = assumed.profile
    cost = PrefillCost(
        old.prefill_base_s * factor,
        old.prefill_per_token_s * factor,
        old.prefill_per_token_squared_s * factor,
        old.prefill_per_hit_token_s * factor,
    )
    return msgspec.structs.replace(_with_cost(assumed, cost), name=name)


def with_cache(assumed: Assumptions, factor: float, name: str) -> Assumptions:
    """Return the assumptions with a multiple of the cache's size."""
    blocks = max(1, round(assumed.profile.num_blocks * factor))
    profile = msgspec.structs.replace(assumed.profile, num_blocks=blocks)
    return msgspec.structs.replace(assumed, name=name, profile=profile)


def _cache_sizes(assumed: Assumptions) -> list[Assumptions]:
    return [with_cache(assumed, factor, assumed.name) for factor in FACTORS]


def _speeds(assumed: Assumptions) -> list[Assumptions]:
    return [with_prefill(assumed, factor, assumed.name) for factor in FACTORS]


def _models(assumed: Assumptions) -> list[Assumptions]:
    return [msgspec.structs.replace(assumed, engine_model=model) for model in ENGINE_MODELS]


def _hit_distance(fleet: AuditedFleet, run: RebuiltRun) -> float:
    """Return the difference of logged and simulated cached tokens, as a share of the prompts."""
    known = [
        (request.cached_tokens, record.hit_tokens or 0, record.request.prompt_tokens)
        for request, record in zip(fleet.requests, run.records, strict=True)
        if request.cached_tokens is not None
    ]
    return abs(sum(logged - hit for logged, hit, _ in known)) / sum(tokens for _, _, tokens in known)


def _ttft_distance(fleet: AuditedFleet, run: RebuiltRun) -> float:
    """Return the mean difference of logged and simulated times to first token, in logged means."""
    known = [
        (request.ttft_s, record.ttft_s or 0.0)
        for request, record in zip(fleet.requests, run.records, strict=True)
        if request.ttft_s is not None
    ]
    return fmean(abs(logged - simulated) for logged, simulated in known) / max(1e-6, fmean(one for one, _ in known))
