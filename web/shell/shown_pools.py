"""The pools that the pages show."""

from __future__ import annotations

from django.http import HttpRequest
from django.shortcuts import get_object_or_404

from controlplane.fleet.models.pool import Pool
from controlplane.fleet.visibility import visible_pools
from controlplane.platform.actor import Actor
from controlplane.platform.role import Role
from controlplane.platform.roles import may, may_somewhere
from web.shell.console_request import sent_or_asked

MAX_POOLS = 200


def shown_pools(actor: Actor) -> list[Pool]:
    """Return the pools that the person can see, by region and name, with their automation settings."""
    pools = visible_pools(actor).select_related("region", "policy__live_version", "automation")
    return list(pools.order_by("region__slug", "slug")[:MAX_POOLS])


def shown_pool(actor: Actor, slug: str) -> Pool:
    """Return one visible pool; 404 otherwise."""
    pools = visible_pools(actor).select_related("region", "policy__live_version", "automation")
    return get_object_or_404(pools, slug=slug)


def chosen_pool(actor: Actor, slug: str) -> Pool | None:
    """Return the visible pool with that name; without a name, the first pool in which the actor can start trials."""
    pools = visible_pools(actor).select_related("policy__live_version").order_by("slug")
    return pools.filter(slug=slug).first() if slug else next(iter(operated_pools(actor)), None)


def operated_pools(actor: Actor) -> list[Pool]:
    """Return the pools in which the actor can start trials and keep recordings."""
    pools = visible_pools(actor).select_related("policy__live_version").order_by("slug")
    return [pool for pool in pools if may(actor, Role.OPERATOR, pool)]


def needed_role(request: HttpRequest, actor: Actor) -> str:
    """Return the role that the requested pool's form requires; empty if the actor has it."""
    slug = sent_or_asked(request, "pool")
    pool = visible_pools(actor).filter(slug=slug).first() if slug else None
    allowed = may(actor, Role.OPERATOR, pool) if pool else may_somewhere(actor, Role.OPERATOR)
    return "" if allowed else f"This requires the role operator in {f'pool {pool.slug}' if pool else 'a pool'}."
