"""Records changes to the contents of the snapshot. Each change increments the snapshot's version in its transaction.

`committed` is sent after the transaction. `controlplane.publication` receives it and publishes the snapshot.
"""

from __future__ import annotations

from django.db import models, transaction
from django.dispatch import Signal

from controlplane.platform.models.snapshot_version import SnapshotVersion

TOPIC = "snapshot"
"""Bus topic of the newest snapshot."""

committed = Signal()
"""Sent after a new snapshot version is committed."""


def record_change() -> None:
    """Increment the snapshot version, and send `committed` after the surrounding transaction commits.

    Call it as the last step of every transaction that changes the contents of a snapshot.
    """
    if not transaction.get_connection().in_atomic_block:
        raise transaction.TransactionManagementError("record_change belongs into the transaction of its change")
    SnapshotVersion.objects.get_or_create(pk=SnapshotVersion.ONLY)
    # In one statement, so that two transactions never get the same version.
    SnapshotVersion.objects.filter(pk=SnapshotVersion.ONLY).update(version=models.F("version") + 1)
    # After the commit: a change that is rolled back publishes nothing.
    transaction.on_commit(_send)


def _send() -> None:
    committed.send(sender=SnapshotVersion)
