"""Do tenants share caches, from which one can tell what another has sent?"""

from __future__ import annotations

from django.db import DatabaseError

from controlplane.doctor.finding import Finding, ok, warning
from controlplane.doctor.installation import Installation
from controlplane.fleet.models.pool import Pool
from controlplane.fleet.shared_caches import with_shared_caches

_REMEDY = (
    "Check “Keep tenants’ caches apart” in the pool's settings on the Topology page, or PATCH its `isolated`. The "
    "first tenant's cache stays warm."
)


def look(_installation: Installation) -> list[Finding]:
    """Name the pools in which several tenants share caches."""
    try:
        shared = with_shared_caches(Pool.objects.all())
    except DatabaseError as error:
        return [warning(f"Cannot read the tenants: {type(error).__name__}.", "Fix the database connection first.")]
    found = [warning(f"Tenants share caches in pool {pool.slug}.", _REMEDY) for pool in shared]
    return found or [ok("Tenants share caches in no pool.")]
