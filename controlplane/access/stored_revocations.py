"""Stores revocations that were sent on the bus while the database was not writable, with audit events."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from celery import shared_task
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from controlplane.platform import recorded_change
from controlplane.platform.actor import Actor
from controlplane.platform.models.api_key import ApiKey
from controlplane.platform.models.snapshot_version import SnapshotVersion
from controlplane.platform.outage.bus_revocations import BusRevocations, bus_revocations
from controlplane.platform.outage.unwritable import CANNOT_WRITE
from controlplane.platform.revisions import locked
from gateway.access.key_revocation import KeyRevocation

VERB = "key.revoke"
_UNSTORED = "The database could not be written; the revocation went over the bus at {:%Y-%m-%d %H:%M:%S} UTC"

logger = logging.getLogger(__name__)


@shared_task(name="controlplane.store_revocations", ignore_result=True)
def store_revocations() -> None:
    """Run every five seconds. It needs no lease, because revoking a key twice changes nothing."""
    store_waiting(bus_revocations())


def store_waiting(revocations: BusRevocations) -> int:
    """Store the waiting revocations and return how many were stored. The others wait for the next run."""
    stored = 0
    for revocation in revocations.waiting():
        try:
            version = _store(revocation)
        except CANNOT_WRITE as error:
            logger.warning("revocations cannot be stored now", extra={"error": type(error).__name__})
            break
        revocations.note_stored(revocation, version)
        stored += 1
    return stored


def _store(revocation: KeyRevocation) -> int:
    """Revoke the key in the database if it is active there. Return the snapshot version after the commit."""
    # The host that revoked the key may have a clock ahead of ours.
    at = min(datetime.fromtimestamp(revocation.at, UTC), timezone.now())
    actor = Actor(revocation.by, revocation.via, request_id=revocation.request_id)
    why = ". ".join(filter(None, (revocation.why, _UNSTORED.format(at))))
    with transaction.atomic():
        either = Q(sha256=revocation.sha256) | Q(previous_sha256=revocation.sha256)
        key = ApiKey.objects.filter(either).first()
        if key is not None and locked(key, None).revoked_at is None:
            recorded_change.change(key, {"revoked_at": at}, VERB, actor=actor, why=why[:200])
    # Read after the commit: gateways drop their own revocation at this version, so its snapshot must lack the key.
    return SnapshotVersion.objects.filter(pk=SnapshotVersion.ONLY).values_list("version", flat=True).first() or 0
