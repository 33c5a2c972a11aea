"""Counts the engines that accept work."""

from __future__ import annotations

from collections.abc import Iterable

from controlplane.fleet.models.engine import DesiredState, Engine
from controlplane.fleet.models.pool import Pool


def others_in_use(pool: Pool, engine: Engine | None) -> bool:
    """Return whether other engines of the pool serve or drain. None: the engine is new."""
    others = pool.engines.exclude(desired_state=DesiredState.MAINTENANCE)
    return others.exclude(pk=engine.pk if engine else None).exists()


def ready_engines(pools: Iterable[Pool]) -> int:
    """Return how many engines of the pools are set to accept work."""
    return Engine.objects.filter(pool__in=pools, desired_state=DesiredState.READY).count()
