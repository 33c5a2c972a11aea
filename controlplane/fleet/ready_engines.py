"""How many engines take work."""

from __future__ import annotations

from collections.abc import Iterable

from controlplane.fleet.models.engine import DesiredState, Engine
from controlplane.fleet.models.pool import Pool


def ready_engines(pools: Iterable[Pool]) -> int:
    """Return how many engines of the pools are meant to take work."""
    return Engine.objects.filter(pool__in=pools, desired_state=DesiredState.READY).count()
