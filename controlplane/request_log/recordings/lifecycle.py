"""Creates and deletes recordings of traffic: time windows of the continuous recording, and uploads."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import IO, Any

from django.conf import settings
from django.db import models, transaction

from controlplane.fleet.models.pool import Pool
from controlplane.fleet.visibility import visible_pools
from controlplane.platform import audit
from controlplane.platform.actor import Actor
from controlplane.platform.field_problems import check_fields, problem
from controlplane.platform.role import Role
from controlplane.platform.roles import may, require
from controlplane.request_log.models.recording import Origin, Recording
from controlplane.request_log.recordings.kept_traces import TooMuchTrafficError, Written, recording_store, written
from controlplane.request_log.recordings.recorded_row import RecordedRow, Resalting
from controlplane.request_log.recordings.statistics import plain
from controlplane.request_log.recordings.upload import checked_rows
from controlplane.request_log.store.segments import recorded_span, recorded_traffic
from routing.values.counted import count

MAX_RECORDINGS = 500
"""Maximum number of stored recordings."""
MAX_NAME = 120


class NoRoomError(RuntimeError):
    """The stored recordings use all available space. The message explains the fix."""


def visible_recordings(actor: Actor) -> models.QuerySet[Recording]:
    """Return the recordings of the pools that the actor may see."""
    recordings = Recording.objects.select_related("pool", "author")
    return recordings if may(actor, Role.VIEWER) else recordings.filter(pool__in=visible_pools(actor))


def record_window(
    pool: Pool, begins_at: datetime, ends_at: datetime, *, actor: Actor, name: str = "", why: str = ""
) -> Recording:
    """Store the pool's traffic that arrived in [begins_at, ends_at), and return its recording.

    Raises NotAllowedError, NoRoomError, and InvalidFieldsError for a window with no traffic or too much traffic.
    """
    require(actor, Role.OPERATOR, pool)
    if not begins_at < ends_at:
        raise problem("ends_at", "Must be after begins_at.")
    begin, end = begins_at.timestamp(), ends_at.timestamp()
    names = Resalting(secrets.token_bytes(32))
    rows = (names.recorded(row, begin) for row in recorded_traffic(begin, end) if row.pool == pool.slug)
    trace = _written(rows, "begins_at")
    if not trace.rows:
        raise problem("begins_at", f"No traffic of pool {pool.slug} was recorded then. {recorded_words()}")
    about = {"origin": Origin.WINDOW, "begins_at": begins_at, "ends_at": ends_at}
    name = name or f"{pool.slug}, {begins_at.astimezone(UTC):%d %b %H:%M:%S} to {ends_at.astimezone(UTC):%H:%M:%S} UTC"
    return _store(pool, name, trace, about, actor, why)


def upload_recording(pool: Pool, file: IO[bytes], *, actor: Actor, name: str, why: str = "") -> Recording:
    """Store an uploaded trace as traffic of the pool, and return its recording.

    Raises NotAllowedError, BadTraceError with every invalid line, InvalidFieldsError, NoRoomError.
    """
    require(actor, Role.OPERATOR, pool)
    names = Resalting(secrets.token_bytes(32))
    trace = _written((names.uploaded(row) for row in checked_rows(file)), "")
    return _store(pool, name or "Uploaded trace", trace, {"origin": Origin.UPLOAD}, actor, why)


def delete_recording(recording: Recording, *, actor: Actor, why: str = "") -> None:
    """Delete the recording and its trace, but keep the results of what-ifs that used it. Raises NotAllowedError."""
    require(actor, Role.OPERATOR, recording.pool)
    with transaction.atomic():
        before, pk = _audit_fields(recording), str(recording.pk)
        key = recording.key
        recording.delete()
        audit.record(actor, "recording.delete", "recording", pk, before=before, why=why, pool=recording.pool.slug)
        # A rollback brings no file back.
        transaction.on_commit(lambda: recording_store().drop_copy(key))


def recorded_words() -> str:
    """Return a sentence about the time span of recorded traffic."""
    if not settings.RECORDING_BYTES:
        return "Recording is off (HEADWAY_RECORDING_BYTES=0)."
    span = recorded_span()
    if span is None:
        return "Nothing is recorded yet; requests appear here seconds after they end."
    since, until = (f"{datetime.fromtimestamp(item, UTC):%Y-%m-%d %H:%M:%S}" for item in span)
    return f"Traffic is recorded from {since} to {until} UTC."


def _written(rows: Iterable[RecordedRow], path: str) -> Written:
    taken = Recording.objects.aggregate(count=models.Count("pk"), size=models.Sum("file_bytes"))
    if taken["count"] >= MAX_RECORDINGS or (taken["size"] or 0) >= settings.KEPT_RECORDING_BYTES:
        raise NoRoomError(
            f"{count(taken['count'], 'recording')} of {(taken['size'] or 0) >> 20} MiB are kept, and there is no room "
            "for more. Delete some, or raise HEADWAY_KEPT_RECORDING_BYTES."
        )
    try:
        return written(rows)
    except TooMuchTrafficError as error:
        raise problem(path, str(error)) from error


def _store(pool: Pool, name: str, trace: Written, about: dict[str, Any], actor: Actor, why: str) -> Recording:
    recording = Recording(
        key=secrets.token_hex(8),
        name=name,
        pool=pool,
        requests=trace.rows,
        file_bytes=len(trace.packed),
        statistics=plain(trace.statistics),
        author=actor.user,
        **about,
    )
    check_fields(recording)
    with transaction.atomic():
        recording.save()
        recording_store().keep(recording, trace)
        audit.record_for(actor, "recording.create", recording, after=_audit_fields(recording), why=why)
    return recording


def _audit_fields(recording: Recording) -> dict[str, Any]:
    return {
        "name": recording.name,
        "origin": recording.origin,
        "begins_at": recording.begins_at.isoformat() if recording.begins_at else None,
        "ends_at": recording.ends_at.isoformat() if recording.ends_at else None,
        "requests": recording.requests,
        "file_bytes": recording.file_bytes,
    }
