"""The leased job that keeps the fleet's past: observe the finished columns, store them, tell everyone the hour."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from datetime import timedelta

from celery import shared_task
from django.db import DatabaseError

from controlplane.history.collector import FINE_S, FleetCollector, fleet_collector
from controlplane.history.rollups import COARSE_S, HOUR_TOPIC, encode_hour, store_finished, stored_hour
from controlplane.platform.bus import get_bus
from controlplane.platform.jobs.lease import Lease, acquire, release, this_owner
from controlplane.platform.models.job_run import JobRun
from gateway.bus.bus import Bus

logger = logging.getLogger(__name__)

LEASE = timedelta(seconds=30)
"""Longer than any run; a dead holder's columns wait in other processes' collectors meanwhile."""


@shared_task(name="controlplane.rollup", ignore_result=True)
def rollup() -> None:
    """Run every few seconds; it writes when a column of ten seconds has ended: three small transactions."""
    keep(fleet_collector(), get_bus(), time.time())


def keep(collector: FleetCollector, bus: Bus, at: float) -> None:
    """Store what has finished by `at` (unix seconds), where this process gets the lease."""
    try:
        if bus.latest(HOUR_TOPIC) is None:
            _tell_hour(bus, at)
        columns = collector.finished(at)
        lease = acquire("rollup", this_owner(), LEASE) if columns else None
        if lease is None:
            return
        run = store_finished(collector, columns, at)
        rows = {f"rows_of_{FINE_S}_s": run.fine, f"of_{COARSE_S}_s": run.coarse, "expired": run.forgotten}
        release(lease, progress=_added(lease, rows))
        _tell_hour(bus, at)
    except DatabaseError as error:
        # The columns wait in the collector until the database is back.
        logger.warning("roll-ups cannot be stored now", extra={"error": type(error).__name__})


def _added(lease: Lease, rows: Mapping[str, int]) -> dict[str, int]:
    """Return what the run has stored in all."""
    before = JobRun.objects.values_list("progress", flat=True).get(pk=lease.run_id)
    return {name: before.get(name, 0) + number for name, number in rows.items()}


def _tell_hour(bus: Bus, at: float) -> None:
    bus.publish(HOUR_TOPIC, encode_hour(stored_hour(at)))
