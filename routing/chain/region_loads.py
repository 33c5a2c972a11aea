"""A pool's load for region rules, from the gateway's own router or from the gateway that owns the pool."""

from __future__ import annotations

from routing.regions.region_view import EngineLoadReport, PoolLoadReport, RegionEngineLoad, RegionLoad
from routing.router import Router
from routing.values.inference_request import InferenceRequest


def engine_loads(
    router: Router, request: InferenceRequest, now: float, report: PoolLoadReport | None = None
) -> tuple[RegionEngineLoad, ...]:
    """Return the loads of the accepting engines. Loads in the owner's `report` take precedence over our own."""
    match, engine_ids = router.view.match(request), router.view.roster.engine_ids
    known = {engine.engine_id: engine for engine in report.engines} if report is not None else {}
    loads = []
    for target in router.view.roster.accepting:
        load = known.get(engine_ids[target]) or _reported_load(router, target, now)
        matched = min(match.blocks(target) * request.block_tokens, request.prompt_tokens)
        loads.append(RegionEngineLoad(load.engine_id, matched, load.in_flight, load.has_room))
    return tuple(loads)


def pool_load(router: Router, now: float, report: PoolLoadReport | None = None) -> RegionLoad:
    """Return the total load of the accepting engines."""
    if report is None:
        report = pool_load_report(router, now)
    return RegionLoad(
        len(report.engines), sum(engine.has_room for engine in report.engines), report.queued, report.in_flight
    )


def pool_load_report(router: Router, now: float) -> PoolLoadReport:
    """Return the pool's load in its own router."""
    accepting = router.view.roster.accepting
    return PoolLoadReport(
        len(router.waiting) + len(router.deferred),
        sum(router.reservations.dispatched(target) for target in accepting),
        tuple([_reported_load(router, target, now) for target in accepting]),
    )


def _reported_load(router: Router, target: int, now: float) -> EngineLoadReport:
    reservations = router.reservations
    waiting = reservations.waiting(target)
    return EngineLoadReport(
        router.view.roster.engine_ids[target],
        reservations.dispatched(target) + waiting,
        waiting == 0 and router.limit.is_open(target, now),
    )
