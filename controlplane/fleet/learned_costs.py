"""Stores learned engine costs, and publishes them after sufficient changes."""

from __future__ import annotations

import functools
from datetime import datetime, timedelta

import msgspec
from celery import shared_task
from django.db import transaction
from django.utils import timezone

from controlplane.fleet.models.learned_cost import LearnedCost
from controlplane.fleet.models.pool import Pool
from controlplane.platform import audit
from controlplane.platform.actor import program
from controlplane.platform.bus import get_bus
from controlplane.platform.snapshot_change import record_change
from controlplane.platform.stream_intake import NewestIntake
from gateway.bus.bus import Bus
from gateway.reports.cost_reports import TOPIC, decode_cost_report
from routing.cost.cost_fit import FittedCost
from routing.cost.cost_model import PrefillCost
from routing.values.prepared_struct import prepared

ACTOR = program("learned costs")
STORE_EVERY = timedelta(minutes=1)
"""Minimum time between two stored and published costs of one engine kind."""
_MAX_KEPT = 10_000
_MOVED = 0.05
"""Relative change of a reference prompt's time that is worth a new snapshot."""
_SPEED_MOVED = 0.10
_REFERENCE_PROMPTS = ((256, 0), (2048, 0), (8192, 0), (32_768, 0), (8192, 6144))


class CostIntake(NewestIntake[tuple[str, str], FittedCost]):
    """The newest unsaved cost of each pool and engine kind."""

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus, TOPIC, _costs_in, _MAX_KEPT)

    def store(self, now: datetime) -> int:
        """Write the changed costs that are due and return how many were written. Keep the others."""
        return self.settle(lambda newest: store_costs(newest, now))


def _costs_in(message: bytes) -> dict[tuple[str, str], FittedCost]:
    pools = decode_cost_report(message).pools
    return {(pool_id, kind): fitted for pool_id, kinds in pools.items() for kind, fitted in kinds.items()}


def store_costs(newest: dict[tuple[str, str], FittedCost], now: datetime) -> tuple[set[tuple[str, str]], int]:
    """Write the costs that changed sufficiently. Return the settled keys and the number of writes.

    A key is settled if it was written, has not changed sufficiently, or belongs to a deleted pool. All writes enter one
    snapshot.
    """
    if not newest:
        return set(), 0
    settled: set[tuple[str, str]] = set()
    written = 0
    with transaction.atomic():
        pools = {pool.slug: pool for pool in Pool.objects.filter(slug__in={slug for slug, _ in newest})}
        stored = {
            (cost.pool.slug, cost.kind): cost
            for cost in LearnedCost.objects.select_for_update(of=("self",))
            .select_related("pool")
            .filter(pool__in=pools.values())
        }
        for key, fitted in sorted(newest.items()):
            before = stored.get(key)
            if key[0] not in pools or (before is not None and not has_moved(fitted_of(before), fitted)):
                settled.add(key)
            elif before is None or now - before.learned_at >= STORE_EVERY:
                _write(pools[key[0]], key[1], before, fitted, now)
                settled.add(key)
                written += 1
        if written:
            record_change()
    return settled, written


def has_moved(before: FittedCost, after: FittedCost) -> bool:
    """Return whether the estimates differ enough to publish the new cost."""
    if before.better != after.better or (before.decode is None) != (after.decode is None):
        return True
    if any(
        _differ(_seconds(before.prefill, *item), _seconds(after.prefill, *item), _MOVED) for item in _REFERENCE_PROMPTS
    ):
        return True
    if before.decode is not None and after.decode is not None:
        steps = [(cost.seconds(1, 4096), cost.seconds(32, 131_072)) for cost in (before.decode, after.decode)]
        if any(_differ(one, other, _MOVED) for one, other in zip(*steps, strict=True)):
            return True
    engines = before.speeds.keys() | after.speeds.keys()
    return any(
        _differ(before.speeds.get(engine, 1.0), after.speeds.get(engine, 1.0), _SPEED_MOVED) for engine in engines
    )


def fitted_of(cost: LearnedCost) -> FittedCost:
    """Return the stored cost, decoded."""
    return msgspec.convert(cost.fitted, prepared(FittedCost))


def _write(pool: Pool, kind: str, before: LearnedCost | None, fitted: FittedCost, now: datetime) -> None:
    plain = msgspec.to_builtins(fitted)
    LearnedCost.objects.update_or_create(pool=pool, kind=kind, defaults={"fitted": plain, "learned_at": now})
    was = {"kind": kind, **before.fitted} if before is not None else None
    audit.record_for(ACTOR, "cost.learn", pool, before=was, after={"kind": kind, **plain})


def _seconds(cost: PrefillCost, prompt_tokens: int, hit_tokens: int) -> float:
    return cost.seconds(prompt_tokens, hit_tokens)


def _differ(one: float, other: float, share: float) -> bool:
    return abs(one - other) > share * max(one, other)


@shared_task(name="controlplane.store_learned_costs", ignore_result=True)
def store_learned_costs() -> None:
    """Run every few seconds. The first run subscribes; later runs write the costs that changed."""
    intake().store(timezone.now())


@functools.cache
def intake() -> CostIntake:
    """Return the only CostIntake of this process."""
    return CostIntake(get_bus())
