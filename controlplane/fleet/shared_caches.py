"""Which pools let tenants use each other's cached prompts."""

from __future__ import annotations

from collections.abc import Iterable

from controlplane.fleet.models.pool import Pool, PoolMode
from controlplane.platform.models.tenant import Tenant


def with_shared_caches(pools: Iterable[Pool]) -> list[Pool]:
    """Return those of the pools in which several tenants share caches; none while there is one tenant."""
    if Tenant.objects.count() < 2:
        return []
    return [pool for pool in pools if not pool.isolated and pool.mode == PoolMode.ROUTE]
