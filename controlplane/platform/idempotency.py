"""Stores the responses of requests with an Idempotency-Key, for a day and up to a maximum number.

The effect of such a request is recorded in the transaction of the effect (by audit.record, which is part of every
change). Therefore a retry after a crash cannot repeat the effect.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from controlplane.platform.conflict import ConflictError
from controlplane.platform.models.idempotency_record import IdempotencyRecord

KEPT = timedelta(hours=24)
UNDER_WAY = timedelta(minutes=1)
"""Time after which a request without a response is considered lost with its process."""
MAX_RECORDS = 10_000
_EFFECT = "effect"

Claim = IdempotencyRecord
"""A record that this request holds (without a status), or the stored response of an earlier request."""

_claimed: ContextVar[Claim | None] = ContextVar("claimed", default=None)


class ReusedKeyError(ValueError):
    """The key was used for another request."""


class UnderWayError(RuntimeError):
    """The first request with the key is still running."""


class AnswerLostError(ConflictError):
    """The first request with the key took effect, but its process ended before the response was stored."""


class SupersededError(ConflictError):
    """Another request has claimed the key, because this request took too long."""


def claim(caller: str, key: str, request_sha256: str) -> Claim:
    """Return a new record for `settle`, or the record with the stored response.

    Raises ReusedKeyError, UnderWayError, AnswerLostError.
    """
    now = timezone.now()
    with transaction.atomic():
        _make_room()
        record, new = IdempotencyRecord.objects.select_for_update().get_or_create(
            caller=caller, key=key, defaults={"request_sha256": request_sha256, "created_at": now}
        )
        if new:
            return record
        if record.request_sha256 != request_sha256:
            raise ReusedKeyError("This Idempotency-Key belongs to another request; use a new one.")
        if record.status is None and record.created_at > now - UNDER_WAY:
            raise UnderWayError("The first request with this Idempotency-Key is still running; retry.")
        if record.status is None and record.body is not None:
            raise AnswerLostError(
                f"The first request with this Idempotency-Key took effect ({record.body[_EFFECT]}), but its answer "
                "was lost with its process. Check what it changed; it is not repeated."
            )
        if record.status is None:
            # The time is the claim's token, too: a first request that still runs no longer holds the record (_held).
            record.created_at = now
            record.save(update_fields=["created_at"])
    return record


@contextmanager
def under(claimed: Claim) -> Iterator[None]:
    """Attribute the effects in the block to the claimed request."""
    token = _claimed.set(claimed)
    try:
        yield
    finally:
        _claimed.reset(token)


def note_effect(what: str) -> None:
    """Record, in the transaction of an effect, that the request took effect. Raises SupersededError."""
    claimed = _claimed.get()
    if claimed is None:
        return
    if not _held(claimed).update(body={_EFFECT: what}):
        raise SupersededError("Another request took this Idempotency-Key over, because this one took too long.")


def settle(claimed: Claim, status: int, body: Any, headers: dict[str, str]) -> None:
    """Store the response for repeated requests."""
    _held(claimed).update(status=status, body=body, headers=headers)


def forget(claimed: Claim) -> None:
    """Release the key of a request that has changed nothing."""
    # A record with an effect stays, so that no repetition has the effect again.
    _held(claimed).filter(body__isnull=True).delete()


def _held(claimed: Claim) -> QuerySet[IdempotencyRecord]:
    """Return the record, if this request still holds it and no later request has claimed its key."""
    return IdempotencyRecord.objects.filter(pk=claimed.pk, status=None, created_at=claimed.created_at)


def _make_room() -> None:
    IdempotencyRecord.objects.filter(created_at__lt=timezone.now() - KEPT).delete()
    over = IdempotencyRecord.objects.count() - MAX_RECORDS + 1
    if over > 0:
        oldest = IdempotencyRecord.objects.order_by("created_at", "pk").values_list("pk", flat=True)[:over]
        IdempotencyRecord.objects.filter(pk__in=list(oldest)).delete()
