"""Ends abandoned job runs and deletes old ones."""

from __future__ import annotations

from datetime import datetime, timedelta

from celery import shared_task
from django.db.models import Exists, OuterRef
from django.utils import timezone

from controlplane.access.sessions import forget_sessions
from controlplane.automation.engine_actions import forget_actions
from controlplane.automation.plan_history import forget_plans
from controlplane.platform.audit_retention import forget_events
from controlplane.platform.models.job_run import JobRun, JobState
from controlplane.trials.canary.lifecycle import forget_canaries
from controlplane.trials.shadow.lifecycle import forget_shadows

ABANDONED_AFTER = timedelta(hours=1)
KEPT = timedelta(days=30)


@shared_task(name="controlplane.housekeeping", ignore_result=True)
def housekeeping() -> None:
    """Run once a minute."""
    now = timezone.now()
    abandon_runs(now)
    forget_runs(now)
    forget_sessions(now)
    forget_plans(now)
    forget_actions(now)
    forget_shadows()
    forget_canaries()
    forget_events(now)


def abandon_runs(now: datetime) -> int:
    """Mark active runs whose lease ended longer than ABANDONED_AFTER ago. Return how many."""
    return JobRun.objects.filter(state=JobState.ACTIVE, lease_until__lt=now - ABANDONED_AFTER).update(
        state=JobState.ABANDONED,
        finished_at=now,
        lease_owner="",
        outcome={"reason": "no worker resumed the run after its holder was lost"},
    )


def forget_runs(now: datetime) -> int:
    """Delete runs that ended longer than KEPT ago, except the newest of each job and shard. Return how many."""
    # The newest stays: the fencing token of the next run continues from it.
    newer = JobRun.objects.filter(job=OuterRef("job"), shard=OuterRef("shard"), pk__gt=OuterRef("pk"))
    deleted, _ = JobRun.objects.filter(Exists(newer), finished_at__lt=now - KEPT).delete()
    return deleted
