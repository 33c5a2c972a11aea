"""Publishes scheduled versions at their time, and records the reason if that fails."""

from __future__ import annotations

import logging
from datetime import timedelta

from celery import shared_task
from django.conf import settings
from django.utils import timezone

from controlplane.policies.scheduled_publishes import carry_out, due_schedules

logger = logging.getLogger(__name__)


@shared_task(name="controlplane.scheduled_publish", ignore_result=True)
def scheduled_publish() -> None:
    """Run every two seconds. No lease: each appointment ends once, by a conditional update of its own row."""
    grace = timedelta(minutes=settings.PUBLISH_GRACE_MIN)
    for pk in due_schedules(timezone.now()):
        try:
            carry_out(pk, timezone.now(), grace=grace)
        except Exception:
            # The edge of the job: one that breaks off is tried again, and holds up no other.
            logger.exception("a scheduled release failed")
