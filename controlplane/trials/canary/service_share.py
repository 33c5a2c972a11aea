"""The share of a pool on trial in its service, and the pools with which it is compared.

A service consists of the pools of one region that serve one model. Their weights determine the pool of each request
(gateway/pools/pool/service.py). The pool on trial has weight 0 in the database. During the trial, the snapshot contains
the weight for its share, so the share ends with the trial.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from controlplane.fleet.models.pool import Pool, PoolMode
from controlplane.trials.models.canary import Canary
from routing.trials.arms import CANARY, LIVE

MAX_WEIGHT = 1000
ROUNDING = 0.02
"""Maximum difference between the kept share and the tried share, because weights are whole numbers."""


def others_of(pool: Pool, pools: Iterable[Pool] | None = None) -> list[Pool]:
    """Return the other pools of its region that serve the model. `pools` contains all candidates."""
    if pools is None:
        pools = Pool.objects.filter(region=pool.region_id, served_model=pool.served_model).order_by("slug")
    service = (pool.region_id, pool.served_model)
    return [
        item
        for item in pools
        if (item.region_id, item.served_model) == service
        and item.pk != pool.pk
        and item.weight
        and item.mode == PoolMode.ROUTE
    ]


def service_problem(pool: Pool) -> str:
    """Return why the pool cannot be tried on a share of its service; empty: it can."""
    others = others_of(pool)
    if pool.mode != PoolMode.ROUTE:
        return f"Pool {pool} only observes."
    if pool.weight:
        return f"Pool {pool} has a weight of {pool.weight}. Set it to 0: the canary assigns its share."
    if not others:
        return f"No other pool of {pool.served_model} in region {pool.region.slug} has a weight above 0."
    if any(other.policy_id != pool.policy_id for other in others):
        return "Another pool of the service follows another policy. Use one policy for all: only engines may differ."
    return ""


def kept_weight(pool: Pool, share: float) -> int | None:
    """Return the integer weight that keeps this share of the service; None: none is close enough."""
    others = others_of(pool)
    weight = round(_weight_for(share, others))
    kept = weight / (weight + sum(other.weight for other in others))
    return weight if 1 <= weight <= MAX_WEIGHT and abs(kept - share) <= ROUNDING else None


def arms_and_weights(pools: Sequence[Pool]) -> dict[int, tuple[str, float]]:
    """Return the arm and weight of the compared pools, by primary key.

    `pools` contains all pools. Their policies must have the attribute `running_canaries`.
    """
    by_pool: dict[int, tuple[str, float]] = {}
    for pool in pools:
        canary = next(
            (running_canary for running_canary in pool.policy.running_canaries if running_canary.pool_id == pool.pk),
            None,
        )
        others = others_of(pool, pools) if canary is not None else []
        if canary is not None and others:
            by_pool |= {other.pk: (LIVE, float(other.weight)) for other in others}
            by_pool[pool.pk] = (CANARY, _weight_for(canary.share, others))
    return by_pool


def side_names(canary: Canary) -> tuple[str, str]:
    """Return the names of candidate and baseline for use within a sentence."""
    if canary.pool is None:
        return "the canary", "the live version"
    return f"pool {canary.pool}", "the rest of the service"


def _weight_for(share: float, others: Sequence[Pool]) -> float:
    return sum(other.weight for other in others) * share / (1 - share)
