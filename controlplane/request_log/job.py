"""The leased job that stores completed requests: receives them on the bus, writes them, and enforces the limits."""

from __future__ import annotations

import contextlib
import functools
import logging
import time
from dataclasses import dataclass, field
from datetime import timedelta

from celery import shared_task
from django.db import DatabaseError

from controlplane.platform.bus import get_bus
from controlplane.platform.jobs.lease import acquire, release, this_owner
from controlplane.platform.stream_intake import StreamIntake
from controlplane.request_log.hindsight import Hindsight
from controlplane.request_log.models.recording import Recording
from controlplane.request_log.models.segment import Retention
from controlplane.request_log.recordings.kept_traces import recording_store
from controlplane.request_log.store.merged_batches import forget_merged_batches
from controlplane.request_log.store.merging import drop_merged, merge_small
from controlplane.request_log.store.retention import keep_bounds
from controlplane.request_log.store.segments import StoredCounts, store
from gateway.contracts.request_batch import TOPIC

logger = logging.getLogger(__name__)

JOB = "requests"
LEASE = timedelta(seconds=20)
"""Longer than any run. After a crash, unstored batches wait in other processes for this time."""
MOST_BATCHES = 256
"""Maximum number of batches in one run. A gateway sends at least one per interval."""
BOUNDS_EVERY = 30
"""Number of runs with stored batches between two checks of the limits."""


@dataclass(slots=True)
class RequestIntake:
    """Completed requests that this process has received. Mutable: the counts."""

    received: StreamIntake
    hindsight: Hindsight = field(default_factory=Hindsight)
    requests: int = 0
    decisions: int = 0
    runs: int = 0
    merged_until_ms: dict[Retention, int] = field(default_factory=dict)
    """Time up to which this process has merged each retention class."""


@functools.cache
def request_intake() -> RequestIntake:
    """Return this process's RequestIntake, which is subscribed to the bus from the first call."""
    return RequestIntake(StreamIntake(get_bus(), TOPIC))


@shared_task(name="controlplane.store_requests", ignore_result=True)
def store_requests() -> None:
    """Run every second. The first run subscribes; later runs store the received batches."""
    keep(request_intake())


def keep(intake: RequestIntake) -> StoredCounts:
    """Store waiting batches, if this process gets the lease. Return the number of new rows."""
    received = intake.received
    if not len(received):
        return StoredCounts()
    values: list[bytes] = []
    try:
        lease = acquire(JOB, this_owner(), LEASE)
        if lease is None:
            received.forget_old()
            return StoredCounts()
        values = received.take(MOST_BATCHES)
        stored = store(values, intake.hindsight)
        # They are stored: a failure below must not give them back.
        values = []
        intake.requests += stored.requests
        intake.decisions += stored.decisions
        intake.runs += 1
        if intake.runs % BOUNDS_EVERY == 1:
            _merge(intake)
            _keep_bounds()
        progress = {
            "stored": intake.decisions, "recorded": intake.requests, "dropped_batches": received.dropped
        }  # fmt: skip
        release(lease, progress=progress)
    except (DatabaseError, OSError) as error:
        received.give_back(values)
        # Also if nothing can be stored: a full disk may be full of old segments.
        with contextlib.suppress(DatabaseError, OSError):
            keep_bounds()
        remedy = "free disk space, or lower HEADWAY_DECISION_BYTES and HEADWAY_RECORDING_BYTES"
        logger.warning("requests cannot be stored now", extra={"error": type(error).__name__, "remedy": remedy})
        return StoredCounts()
    return stored


def _merge(intake: RequestIntake) -> None:
    now_ms = int(time.time() * 1000)
    for retention in (Retention.DECISIONS, Retention.TRAFFIC):
        since_ms = intake.merged_until_ms.get(retention, 0)
        intake.merged_until_ms[retention] = merge_small(retention, since_ms, now_ms)
    drop_merged(now_ms)
    forget_merged_batches(now_ms)


def _keep_bounds() -> None:
    keep_bounds()
    recording_store().sweep(set(Recording.objects.values_list("key", flat=True)), time.time())
