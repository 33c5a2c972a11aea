"""Job runs that an actor may see."""

from __future__ import annotations

from django.db.models import Q, QuerySet

from controlplane.fleet.preflight.lifecycle import JOB as PREFLIGHT
from controlplane.fleet.visibility import visible_engines, visible_pools
from controlplane.job_runs.control import OF_POOLS
from controlplane.platform.actor import Actor
from controlplane.platform.models.job_run import JobRun
from controlplane.platform.role import Role
from controlplane.platform.roles import may
from controlplane.trials.models.whatif import WhatIf
from controlplane.trials.whatif.lifecycle import JOB as WHATIF


def visible_runs(actor: Actor) -> QuerySet[JobRun]:
    """Return the job runs that the actor may see. Runs for engines and pools belong to their pools."""
    if may(actor, Role.VIEWER):
        return JobRun.objects.all()
    of_engines = Q(job=PREFLIGHT, shard__in=visible_engines(actor).values("pk"))
    pools = visible_pools(actor)
    of_whatifs = Q(job=WHATIF, shard__in=WhatIf.objects.filter(pool__in=pools).values("pk"))
    return JobRun.objects.filter(of_engines | of_whatifs | Q(job__in=OF_POOLS, shard__in=pools.values("pk")))
