"""Keeps snapshot versions increasing after a database was restored from a backup or replaced.

Gateways never serve a version lower than one they have served. Therefore an older database continues above the
gateways' version, so that its changes reach them.
"""

from __future__ import annotations

import logging
from functools import lru_cache

from django.db import transaction

from controlplane.platform import audit
from controlplane.platform.actor import program
from controlplane.platform.bus import get_bus
from controlplane.platform.live_fleet.samples import fleet_samples
from controlplane.platform.models.snapshot_version import SnapshotVersion
from controlplane.platform.snapshot_change import TOPIC, record_change
from gateway.contracts.snapshot import decode_snapshot
from gateway.contracts.wire import UnreadableMessageError

ACTOR = program("publication")
VERB = "snapshot.continue"
WHY = "Gateways served a newer snapshot than this database knows, as after a restore from a backup"

logger = logging.getLogger(__name__)


def version_on_bus() -> int:
    """Return the version of the published snapshot; -1 without a readable snapshot."""
    latest = get_bus().latest(TOPIC)
    return _version_of(latest) if latest is not None else -1


@lru_cache(maxsize=1)
def _version_of(data: bytes) -> int:
    try:
        return decode_snapshot(data).version
    except UnreadableMessageError:
        return -1


def version_served() -> int:
    """Return the newest version on the bus and at gateways; -1: none."""
    return max(version_on_bus(), fleet_samples().newest_snapshot())


def version_in_database() -> int:
    """Return the committed version; 0: none yet."""
    known = SnapshotVersion.objects.filter(pk=SnapshotVersion.ONLY).values_list("version", flat=True).first()
    return known or 0


def continue_above(served: int) -> bool:
    """Raise the version above `served`, with an audit event, if `served` is newer. Return True if it was raised."""
    if served <= 0 or version_in_database() >= served:
        return False
    with transaction.atomic():
        SnapshotVersion.objects.get_or_create(pk=SnapshotVersion.ONLY)
        # Another process may have raised it since the check above.
        counter = SnapshotVersion.objects.select_for_update().get(pk=SnapshotVersion.ONLY)
        before = counter.version
        if before >= served:
            return False
        # `record_change` raises it above.
        counter.version = served
        counter.save(update_fields=["version"])
        audit.record(ACTOR, VERB, "snapshot", "", before={"version": before}, after={"version": served + 1}, why=WHY)
        record_change()
    logger.warning(
        "this database was at snapshot version %d, and gateways have served %d: it continues at %d with what it holds",
        before,
        served,
        served + 1,
    )
    return True
