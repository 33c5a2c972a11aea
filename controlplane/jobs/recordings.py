"""The leased job that records traffic: observe what the bus brought, write it to the ring, keep its bounds."""

from __future__ import annotations

import logging
import time
from datetime import timedelta

from celery import shared_task
from django.conf import settings
from django.db import DatabaseError

from controlplane.jobs.lease import acquire, renew, this_owner
from controlplane.models import Recording
from controlplane.recordings.storage import TrafficStorage, recording_shelf, traffic_storage
from gateway.contracts.traffic_row import rows_in
from gateway.contracts.wire import UnreadableMessageError

logger = logging.getLogger(__name__)

JOB = "recordings"
LEASE = timedelta(seconds=20)
"""Longer than any run; what a dead holder did not store waits in the other processes meanwhile."""
SHRINK_EVERY = 30
"""Bounds are looked at once in so many runs that stored something."""


@shared_task(name="controlplane.record_traffic", ignore_result=True)
def record_traffic() -> None:
    """Run every two seconds: the first run begins to listen, each later one stores what has come."""
    if settings.RECORDING_BYTES:
        record(traffic_storage())


def record(storage: TrafficStorage) -> int:
    """Store what waits, where this process gets the lease, and return how many requests that were."""
    intake, ring = storage.intake, storage.ring
    if not len(intake):
        return 0
    batches: list[bytes] = []
    try:
        lease = acquire(JOB, this_owner(), LEASE)
        if lease is None:
            intake.forget_old()
            return 0
        batches = intake.take()
        good, count = _readable(batches)
        if good:
            ring.append(good)
        batches = []
        storage.stored += count
        storage.runs += 1
        if storage.runs % SHRINK_EVERY == 1:
            _keep_bounds(storage)
        # A lease of no length is a release that brings the progress along.
        renew(lease, timedelta(0), progress={"recorded": storage.stored, "dropped_batches": intake.dropped})
    except (DatabaseError, OSError) as error:
        intake.give_back(batches)
        logger.warning(
            "traffic cannot be recorded now",
            extra={"error": type(error).__name__, "remedy": "free disk space or lower SWITCHYARD_RECORDING_BYTES"},
        )
        return 0
    return count


def _keep_bounds(storage: TrafficStorage) -> None:
    now = time.time()
    storage.ring.shrink(now)
    recording_shelf().sweep(set(Recording.objects.values_list("key", flat=True)), now)


def _readable(batches: list[bytes]) -> tuple[list[bytes], int]:
    """Return the batches that are batches, and how many rows they hold."""
    good, count = [], 0
    for value in batches:
        try:
            count += rows_in(value)
        except UnreadableMessageError as error:
            logger.warning("traffic cannot be read", extra={"reason": str(error)})
        else:
            good.append(value)
    return good, count
