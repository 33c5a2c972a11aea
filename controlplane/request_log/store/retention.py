"""Limits each retention class in bytes and age: deletes the oldest segments with their index rows."""

from __future__ import annotations

import time

from django.conf import settings
from django.db import transaction
from django.db.models import Sum

from controlplane.request_log.models.segment import Retention, Segment

DROPPED_AT_ONCE = 16
"""Number of segments deleted in one transaction, so that other writers do not wait long."""


def keep_bounds() -> None:
    """Delete segments that exceed the limits in the settings."""
    shrink(Retention.DECISIONS, settings.DECISION_BYTES)
    shrink(Retention.TRAFFIC, settings.RECORDING_BYTES, time.time() - settings.RECORDING_HOURS * 3600.0)


def used_bytes(retention: Retention) -> int:
    """Return the bytes of the class that count against its budget."""
    return Segment.objects.filter(retention=retention).aggregate(size=Sum("size"))["size"] or 0


def shrink(retention: Retention, budget_bytes: int, oldest: float = 0.0) -> int:
    """Delete the oldest segments until the class is within its budget and none is before `oldest` (unix seconds)."""
    segments, over, dropped = Segment.objects.filter(retention=retention), used_bytes(retention) - budget_bytes, 0
    while True:
        gone = []
        for pk, at_ms, size in segments.order_by("at_ms", "pk").values_list("pk", "at_ms", "size")[:DROPPED_AT_ONCE]:
            if over <= 0 and at_ms >= oldest * 1000:
                break
            gone.append(pk)
            over -= size
        if not gone:
            return dropped
        with transaction.atomic():
            # Only the key, or Django would read the data of the rows to delete.
            Segment.objects.filter(pk__in=gone).only("pk").delete()
        dropped += len(gone)
