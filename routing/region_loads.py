"""A pool's load as region rules see it: from the own router, or from the gateway that owns the pool."""

from __future__ import annotations

from routing.regions.region_view import EngineStanding, PoolLoadReport, RegionEngineLoad, RegionLoad
from routing.router import Router
from routing.values.inference_request import InferenceRequest


def engine_loads(
    router: Router, request: InferenceRequest, now: float, told: PoolLoadReport | None = None
) -> tuple[RegionEngineLoad, ...]:
    """Return the engines that accept work; loads in the owner's `report` take precedence over our own."""
    match, engine_ids = router.view.match(request), router.view.roster.engine_ids
    known = {engine.engine_id: engine for engine in told.engines} if told is not None else {}
    loads = []
    for target in router.view.roster.accepting:
        standing = known.get(engine_ids[target]) or _standing(router, target, now)
        matched = min(match.blocks(target) * request.block_tokens, request.prompt_tokens)
        loads.append(RegionEngineLoad(standing.engine_id, matched, standing.in_flight, standing.has_room))
    return tuple(loads)


def pool_load(router: Router, now: float, told: PoolLoadReport | None = None) -> RegionLoad:
    """Return the load of all engines that take work."""
    if told is None:
        told = pool_standing(router, now)
    return RegionLoad(len(told.engines), sum(engine.has_room for engine in told.engines), told.queued, told.in_flight)


def pool_standing(router: Router, now: float) -> PoolLoadReport:
    """Return the pool as its own router sees it."""
    accepting = router.view.roster.accepting
    return PoolLoadReport(
        len(router.waiting) + len(router.deferred),
        sum(router.reservations.dispatched(target) for target in accepting),
        tuple([_standing(router, target, now) for target in accepting]),
    )


def _standing(router: Router, target: int, now: float) -> EngineStanding:
    standing = router.reservations
    waiting = standing.waiting(target)
    return EngineStanding(
        router.view.roster.engine_ids[target],
        standing.dispatched(target) + waiting,
        waiting == 0 and router.limit.is_open(target, now),
    )
