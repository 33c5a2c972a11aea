"""Stores the fleet's history: writes finished columns, merges them into longer intervals, and deletes old ones.

Space for a pool of 8 engines (about 0.3 kB per row with its index entries) and of 1,000 (11 kB):

    10 s for 26 h    9,360 rows per pool    2.8 MB    105 MB
    2 min for 30 d  21,600 rows per pool    6.5 MB    240 MB

MAX_ROWS limits the number of rows regardless of the number of pools. The oldest are deleted first.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import msgspec
from celery import shared_task
from django.db import DatabaseError, transaction

from controlplane.history.annotation import Annotation, event_verb
from controlplane.history.bucket import Column
from controlplane.history.collector import FINE_S, FleetCollector, fleet_collector
from controlplane.history.merge import merged_by
from controlplane.history.models.rollup import Rollup, RollupRoster
from controlplane.history.store import PoolHistoryFacts, read_past, read_peaks, write_columns
from controlplane.platform import audit
from controlplane.platform.actor import program
from controlplane.platform.bus import get_bus
from controlplane.platform.jobs.lease import Lease, acquire, release, this_owner
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.models.job_run import JobRun
from gateway.bus.bus import Bus
from gateway.contracts.fleet_sample import PoolSample
from gateway.contracts.wire import MIB, WireForm
from routing.values.prepared_struct import prepared

COARSE_S = 120
FACTOR = COARSE_S // FINE_S
KEPT_S = {FINE_S: 26 * 3600, COARSE_S: 30 * 86_400}
"""Seconds that intervals of each length are kept, so that an hour and a day can always be shown in full."""
MAX_ROWS = {FINE_S: 400_000, COARSE_S: 600_000}
CATCH_UP = 30
"""Maximum number of long intervals made in one run. After a pause of the job, the next runs make the others."""
FORGET_EVERY = 30
"""Number of fine intervals between two deletions of old rows."""
ACTOR = program("fleet history")
HOUR_TOPIC = "fleet_hour"
"""Last-value bus topic with the stored peaks of the last hour, for all web processes and after restarts."""
HOUR_COLUMNS = 360


class StoredHour(msgspec.Struct, frozen=True):
    """Longest queue per pool and column of FINE_S seconds. Missing columns were not recorded."""

    peaks: dict[str, dict[int, float]]


_hour = WireForm(StoredHour, "a stored hour", limit=64 * MIB)


@dataclass(frozen=True, slots=True)
class RollupRun:
    """Result of one run."""

    fine: int
    coarse: int
    forgotten: int


def store_finished(collector: FleetCollector, columns: Sequence[Column], at: float) -> RollupRun:
    """Store finished columns and the long intervals that they complete, and delete old rows, in one transaction.

    `at` is unix seconds. Repeated or concurrent runs store nothing twice.
    """
    newest = columns[-1].index
    markers = collector.markers(newest)
    facts = {pool.pool_id: _facts(pool) for pool in collector.pools()}
    with transaction.atomic():
        fine = write_columns(FINE_S, columns, markers, facts)
        coarse = _store_coarse(newest)
        forgotten = forget(at) if newest % FORGET_EVERY == 0 else 0
        _record_events(markers)
    # After the commit: what a failed transaction held waits for the next run.
    collector.confirm(newest, markers[-1].number if markers else 0)
    return RollupRun(fine, coarse, forgotten)


def _record_events(markers: Sequence[Annotation]) -> None:
    """Write an audit event for each engine that is lost, restarted, or back from a loss, once for all processes."""
    for marker in markers:
        verb = event_verb(marker)
        known = AuditEvent.objects.filter(verb=verb, object_id=marker.engine_id, after__at=marker.at)
        if verb and not known.exists():
            after, pool = {"at": marker.at}, marker.pool_id
            audit.record(ACTOR, verb, "engine", marker.engine_id, after=after, why=marker.text, pool=pool)


def stored_hour(at: float) -> StoredHour:
    """Return the peaks of the hour before `at` (unix seconds)."""
    last = int(at // FINE_S)
    return StoredHour(read_peaks(FINE_S, last - HOUR_COLUMNS + 1, last))


def encode_hour(hour: StoredHour) -> bytes:
    """Return the hour as msgpack."""
    return _hour.encode(hour)


def decode_hour(data: bytes) -> StoredHour:
    """Decode an hour. Raises UnreadableMessageError for invalid bytes."""
    return _hour.decode(data)


def forget(at: float) -> int:
    """Delete rows that are older than KEPT_S or exceed MAX_ROWS, and rosters without rows.

    Return the number of rows.
    """
    deleted = 0
    for seconds, kept_s in KEPT_S.items():
        rows = Rollup.objects.filter(seconds=seconds)
        deleted += rows.filter(index__lt=int((at - kept_s) // seconds)).delete()[0]
        surplus = rows.order_by("-index").values_list("index", flat=True)[MAX_ROWS[seconds] :].first()
        if surplus is not None:
            deleted += rows.filter(index__lte=surplus).delete()[0]
    if deleted:
        RollupRoster.objects.filter(rollups=None).delete()
    return deleted


def _store_coarse(newest_fine: int) -> int:
    """Store missing long intervals that have ended, oldest first, CATCH_UP at most."""
    last = (newest_fine + 1) // FACTOR - 1
    stored = Rollup.objects.filter(seconds=COARSE_S).order_by("-index").values_list("index", flat=True).first()
    oldest = Rollup.objects.filter(seconds=FINE_S).order_by("index").values_list("index", flat=True).first()
    if oldest is None:
        return 0
    first = max(oldest // FACTOR, -1 if stored is None else stored + 1)
    if first > last:
        return 0
    # After a pause the first intervals may have no rows at all: begin at the first one with rows.
    begun = (
        Rollup.objects.filter(seconds=FINE_S, index__gte=first * FACTOR)
        .order_by("index")
        .values_list("index", flat=True)
        .first()
    )
    if begun is None:
        return 0
    first = max(first, begun // FACTOR)
    last = min(last, first + CATCH_UP - 1)
    past = read_past(FINE_S, first * FACTOR, (last + 1) * FACTOR - 1)
    columns = [column for _, column in sorted(merged_by(past.columns, FACTOR).items())]
    return write_columns(COARSE_S, columns, past.markers, past.pools) if columns else 0


def _facts(pool: PoolSample) -> PoolHistoryFacts:
    return msgspec.convert(pool, prepared(PoolHistoryFacts), from_attributes=True)


logger = logging.getLogger(__name__)

LEASE = timedelta(seconds=30)
"""Longer than any run. After a crash, columns wait in other processes' collectors for this time."""


@shared_task(name="controlplane.rollup", ignore_result=True)
def rollup() -> None:
    """Run every few seconds. When a ten-second column has ended, store it in three small transactions."""
    keep(fleet_collector(), get_bus(), time.time())


def keep(collector: FleetCollector, bus: Bus, at: float) -> None:
    """Store the columns finished at `at` (unix seconds), if this process gets the lease."""
    try:
        # After a restart of the bus every web process needs it at once.
        if bus.latest(HOUR_TOPIC) is None:
            _publish_hour(bus, at)
        columns = collector.finished(at)
        lease = acquire("rollup", this_owner(), LEASE) if columns else None
        if lease is None:
            return
        run = store_finished(collector, columns, at)
        rows = {f"rows_of_{FINE_S}_s": run.fine, f"of_{COARSE_S}_s": run.coarse, "expired": run.forgotten}
        release(lease, progress=_added(lease, rows))
        _publish_hour(bus, at)
    except DatabaseError as error:
        # The columns wait in the collector until the database is back.
        logger.warning("roll-ups cannot be stored now", extra={"error": type(error).__name__})


def _added(lease: Lease, rows: Mapping[str, int]) -> dict[str, int]:
    """Return the run's totals of stored rows."""
    before = JobRun.objects.values_list("progress", flat=True).get(pk=lease.run_id)
    return {name: before.get(name, 0) + number for name, number in rows.items()}


def _publish_hour(bus: Bus, at: float) -> None:
    bus.publish(HOUR_TOPIC, encode_hour(stored_hour(at)))
