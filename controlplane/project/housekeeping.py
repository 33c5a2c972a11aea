"""Ends abandoned job runs, and deletes old ones and what else has been kept long enough."""

from __future__ import annotations

from datetime import datetime, timedelta

from celery import shared_task
from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef
from django.utils import timezone

from controlplane.access.sessions import forget_sessions
from controlplane.advice.proposals import forget_proposals
from controlplane.automation.engine_actions import forget_actions
from controlplane.automation.plan_history import forget_plans
from controlplane.incidents.job import forget_incidents
from controlplane.notifications.job import forget_sends
from controlplane.platform import audit
from controlplane.platform.actor import program
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.models.job_run import JobRun, JobState
from controlplane.trials.canary.lifecycle import forget_canaries
from controlplane.trials.shadow.lifecycle import forget_shadows

ABANDONED_AFTER = timedelta(hours=1)
KEPT = timedelta(days=30)
EVENTS_AT_ONCE = 5_000
"""Number of audit events deleted in one transaction."""
EVENTS_EVERY = timedelta(days=1)
"""Maximum delay of their deletion, so that it records one audit event a day instead of one a minute."""


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
    forget_proposals()
    forget_incidents(now)
    forget_sends(now)
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


def forget_events(now: datetime) -> int:
    """Delete the oldest audit events, if some are EVENTS_EVERY past HEADWAY_AUDIT_RETENTION_DAYS, and record it. Return
    how many, EVENTS_AT_ONCE at most.
    """
    days = settings.AUDIT_RETENTION_DAYS
    until = now - timedelta(days=days)
    if not days or not AuditEvent.objects.filter(at__lt=until - EVENTS_EVERY).exists():
        return 0
    with transaction.atomic():
        oldest = (
            AuditEvent.objects.filter(at__lt=until).order_by("at", "id").values_list("pk", flat=True)[:EVENTS_AT_ONCE]
        )
        # By their ids: Django deletes no sliced query. A query's delete does not call AuditEvent.delete, which raises.
        deleted, _ = AuditEvent.objects.filter(pk__in=list(oldest)).delete()
        fields = {"events": deleted, "older_than": until.isoformat(), "retention_days": days}
        audit.record(program("housekeeping"), "audit.forget", "audit", "", after=fields)
    return deleted
