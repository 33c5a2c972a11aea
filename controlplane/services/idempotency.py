"""Keeps the answers of named requests: for a day, and a bounded number of them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from controlplane.models import IdempotencyRecord

KEPT = timedelta(hours=24)
UNDER_WAY = timedelta(minutes=1)
"""A request that was not answered by then has died with its process."""
MAX_RECORDS = 10_000

Claim = IdempotencyRecord
"""A record that this request holds (no status yet), or the settled answer of the one before."""


class ReusedKeyError(ValueError):
    """The key named another request before."""


class UnderWayError(RuntimeError):
    """The first request with the key is not answered yet."""


def claim(caller: str, key: str, request_sha256: str) -> Claim:
    """Return a new record to be settled, or the settled one; raises ReusedKeyError, UnderWayError."""
    now = timezone.now()
    with transaction.atomic():
        _make_room()
        record, new = IdempotencyRecord.objects.select_for_update().get_or_create(
            caller=caller, key=key, defaults={"request_sha256": request_sha256, "created_at": now}
        )
        if new:
            return record
        if record.request_sha256 != request_sha256:
            raise ReusedKeyError("This Idempotency-Key named another request; use a new one for each.")
        if record.status is None and record.created_at > now - UNDER_WAY:
            raise UnderWayError("The first request with this Idempotency-Key is still under way; ask again.")
        if record.status is None:
            record.created_at = now
            record.save(update_fields=["created_at"])
    return record


def settle(claimed: Claim, status: int, body: Any, headers: dict[str, str]) -> None:
    """Store the answer for repetitions."""
    IdempotencyRecord.objects.filter(pk=claimed.pk).update(status=status, body=body, headers=headers)


def forget(claimed: Claim) -> None:
    """Give the key free again, because its request has changed nothing."""
    IdempotencyRecord.objects.filter(pk=claimed.pk, status=None).delete()


def _make_room() -> None:
    IdempotencyRecord.objects.filter(created_at__lt=timezone.now() - KEPT).delete()
    over = IdempotencyRecord.objects.count() - MAX_RECORDS + 1
    if over > 0:
        oldest = IdempotencyRecord.objects.order_by("created_at", "pk").values_list("pk", flat=True)[:over]
        IdempotencyRecord.objects.filter(pk__in=list(oldest)).delete()
