"""What an actor may look at: everything for whoever has a role everywhere, else what belongs to their pools."""

from __future__ import annotations

from django.db.models import Q, QuerySet

from controlplane.models import AuditEvent, Engine, JobRun, Policy, Region, Role, WhatIf
from controlplane.services.actor import Actor
from controlplane.services.job_control import OF_POOLS, PREFLIGHT, WHATIF
from controlplane.services.roles import may, visible_pools


def visible_engines(actor: Actor) -> QuerySet[Engine]:
    """Return the engines of the pools the actor may see, with their pools."""
    engines = Engine.objects.select_related("pool")
    return engines if may(actor, Role.VIEWER) else engines.filter(pool__in=visible_pools(actor))


def visible_policies(actor: Actor) -> QuerySet[Policy]:
    """Return the policies of the pools the actor may see, with their live versions."""
    policies = Policy.objects.select_related("live_version")
    if may(actor, Role.VIEWER):
        return policies
    return policies.filter(pk__in=visible_pools(actor).values("policy"))


def visible_regions(actor: Actor) -> QuerySet[Region]:
    """Return the regions in which the actor may see a pool."""
    if may(actor, Role.VIEWER):
        return Region.objects.all()
    return Region.objects.filter(pk__in=visible_pools(actor).values("region"))


def visible_events(actor: Actor) -> QuerySet[AuditEvent]:
    """Return the audit events of the actor's pools and of the policies these pools follow."""
    if may(actor, Role.VIEWER):
        return AuditEvent.objects.all()
    pools = Q(pool_slug__in=visible_pools(actor).values("slug"))
    policies = Q(pool_slug="", object_kind="policy", object_id__in=visible_policies(actor).values("slug"))
    return AuditEvent.objects.filter(pools | policies)


def visible_runs(actor: Actor) -> QuerySet[JobRun]:
    """Return the job runs the actor may see: those about engines and pools belong to these pools."""
    if may(actor, Role.VIEWER):
        return JobRun.objects.all()
    of_engines = Q(job=PREFLIGHT, shard__in=visible_engines(actor).values("pk"))
    pools = visible_pools(actor)
    of_whatifs = Q(job=WHATIF, shard__in=WhatIf.objects.filter(pool__in=pools).values("pk"))
    return JobRun.objects.filter(of_engines | of_whatifs | Q(job__in=OF_POOLS, shard__in=pools.values("pk")))
