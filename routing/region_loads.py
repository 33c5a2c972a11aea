"""A pool's engines as region rules see them."""

from __future__ import annotations

from routing.regions.region_view import EngineLoad, RegionLoad
from routing.router import Router
from routing.values.inference_request import InferenceRequest


def engine_loads(router: Router, request: InferenceRequest, now: float) -> tuple[EngineLoad, ...]:
    """Return the engines that take work."""
    match, standing, engine_ids = router.view.match(request), router.reservations, router.view.roster.engine_ids
    return tuple(
        [
            EngineLoad(
                engine_ids[target],
                min(match.blocks(target) * request.block_tokens, request.prompt_tokens),
                standing.dispatched(target) + standing.waiting(target),
                _has_room(router, target, now),
            )
            for target in router.view.roster.accepting
        ]
    )


def pool_load(router: Router, now: float) -> RegionLoad:
    """Return the load of all engines that take work."""
    accepting = router.view.roster.accepting
    return RegionLoad(
        len(accepting),
        sum(_has_room(router, target, now) for target in accepting),
        len(router.waiting) + len(router.deferred),
        sum(router.reservations.dispatched(target) for target in accepting),
    )


def _has_room(router: Router, target: int, now: float) -> bool:
    return router.reservations.waiting(target) == 0 and router.limit.is_open(target, now)
