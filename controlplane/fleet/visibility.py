"""Regions, pools, and engines that an actor may see: all with a role everywhere, otherwise only the actor's pools."""

from __future__ import annotations

from django.db.models import QuerySet

from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool
from controlplane.fleet.models.region import Region
from controlplane.platform.actor import Actor
from controlplane.platform.field_problems import problem
from controlplane.platform.role import Role
from controlplane.platform.roles import may, seen_by


def visible_pools(actor: Actor) -> QuerySet[Pool]:
    """Return the pools the actor may see."""
    return Pool.objects.filter(seen_by(actor))


def named_pool(actor: Actor, slug: str) -> Pool:
    """Return the pool that a request body names as `pool`, if the actor may see it. Raises InvalidFieldsError."""
    pools = visible_pools(actor).select_related("policy__live_version")
    # PostgreSQL takes no NUL in a text.
    pool = pools.filter(slug=slug).first() if "\x00" not in slug else None
    if pool is None:
        raise problem("pool", "No such pool.")
    return pool


def visible_engines(actor: Actor) -> QuerySet[Engine]:
    """Return the engines of the pools the actor may see, with their pools."""
    engines = Engine.objects.select_related("pool")
    return engines if may(actor, Role.VIEWER) else engines.filter(pool__in=visible_pools(actor))


def visible_regions(actor: Actor) -> QuerySet[Region]:
    """Return the regions in which the actor may see a pool."""
    if may(actor, Role.VIEWER):
        return Region.objects.all()
    return Region.objects.filter(pk__in=visible_pools(actor).values("region"))
