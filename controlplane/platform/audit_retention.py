"""Deletes audit events older than HEADWAY_AUDIT_RETENTION_DAYS, and records the deletion in the audit."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction

from controlplane.platform import audit
from controlplane.platform.actor import program
from controlplane.platform.models.audit_event import AuditEvent

BATCH = 5_000
"""Number of events deleted in one transaction."""
EVERY = timedelta(days=1)
"""Maximum delay of deletion, so that it records one audit event a day instead of one a minute."""


def forget_events(now: datetime) -> int:
    """Delete the oldest events, BATCH at most, if some are EVERY past their retention. Return how many."""
    days = settings.AUDIT_RETENTION_DAYS
    until = now - timedelta(days=days)
    if not days or not AuditEvent.objects.filter(at__lt=until - EVERY).exists():
        return 0
    with transaction.atomic():
        oldest = AuditEvent.objects.filter(at__lt=until).order_by("at", "id").values_list("pk", flat=True)[:BATCH]
        # By their ids: Django deletes no sliced query. A query's delete does not call AuditEvent.delete, which raises.
        deleted, _ = AuditEvent.objects.filter(pk__in=list(oldest)).delete()
        fields = {"events": deleted, "older_than": until.isoformat(), "retention_days": days}
        audit.record(program("housekeeping"), "audit.forget", "audit", "", after=fields)
    return deleted
