"""Recorded traffic or an upload becomes a recording that is kept until its deletion."""

from __future__ import annotations

import gzip
import io
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.test import override_settings

from controlplane.fleet.models.pool import Pool
from controlplane.platform.actor import program
from controlplane.platform.field_problems import InvalidFieldsError
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.request_log.models.recording import Recording
from controlplane.request_log.models.segment import Retention, Segment
from controlplane.request_log.recordings.kept_traces import (
    LEFT_OVER_S,
    RecordingGoneError,
    RecordingStore,
    TooMuchTrafficError,
    recording_store,
    written,
)
from controlplane.request_log.recordings.lifecycle import (
    NoRoomError,
    delete_recording,
    record_window,
    recorded_words,
    upload_recording,
)
from controlplane.request_log.recordings.recorded_row import read_recorded
from controlplane.request_log.recordings.upload import BadTraceError
from tests.controlplane.request_log.recordings.traffic import START, record, rows

ACTOR = program("test")
BEGIN = datetime.fromtimestamp(START, UTC)
ROW = b'{"timestamp": 0, "input_length": 600, "output_length": 2, "hash_ids": [1, 2]}\n'


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path) -> object:
    with override_settings(STATE_DIR=tmp_path):
        yield


@pytest.mark.django_db
def test_window_becomes_a_recording(pool: Pool) -> None:
    record(rows(30) + rows(5, 100, pool="other"))
    made = record_window(pool, BEGIN + timedelta(seconds=10), BEGIN + timedelta(seconds=200), actor=ACTOR, why="try")
    assert (made.requests, made.name) == (20, "chat, 15 Jan 08:00:10 to 08:03:20 UTC")
    stored_rows = list(read_recorded(recording_store().path(made.key)))
    assert [row.timestamp for row in stored_rows] == [1000.0 * number for number in range(20)]
    assert made.statistics["sessions"] == 5
    assert (sum(made.statistics["arrivals"]), made.statistics["arrivals"][0], made.statistics["arrivals"][-1]) == (
        20,
        1,
        1,
    )
    event = AuditEvent.objects.get(verb="recording.create")
    assert (event.object_id, event.pool_slug, event.why) == (str(made.pk), "chat", "try")


@pytest.mark.django_db
def test_two_recordings_of_one_window_have_different_names(pool: Pool) -> None:
    record(rows(5))
    end = BEGIN + timedelta(seconds=9)
    one, other = (
        list(read_recorded(recording_store().path(record_window(pool, BEGIN, end, actor=ACTOR).key))) for _ in range(2)
    )
    assert not {block for row in one for block in row.hash_ids} & {block for row in other for block in row.hash_ids}
    assert not {row.session_id for row in one} & {row.session_id for row in other}


@pytest.mark.django_db
def test_empty_window_error_states_the_recorded_range(pool: Pool) -> None:
    with pytest.raises(InvalidFieldsError, match="Nothing is recorded yet"):
        record_window(pool, BEGIN, BEGIN + timedelta(hours=1), actor=ACTOR)
    record(rows(5, pool="other"))
    with pytest.raises(InvalidFieldsError, match="Traffic is recorded from"):
        record_window(pool, BEGIN, BEGIN + timedelta(hours=1), actor=ACTOR)
    with pytest.raises(InvalidFieldsError, match="after begins_at"):
        record_window(pool, BEGIN, BEGIN, actor=ACTOR)
    assert not kept_segments()
    with override_settings(RECORDING_BYTES=0):
        assert "off" in recorded_words()


@pytest.mark.django_db
def test_upload_holds_no_name_and_no_text(pool: Pool) -> None:
    trace = ROW + ROW.replace(
        b'"hash_ids"', b'"session_id": "canary-a", "tenant": "canary-b", "prompt": "canary-c", "hash_ids"'
    )
    made = upload_recording(pool, io.BytesIO(trace), actor=ACTOR, name="mine")
    stored = gzip.decompress(recording_store().packed(made.key))
    assert b"canary" not in stored
    assert stored.count(b"\n") == made.requests == 2


@pytest.mark.django_db
def test_invalid_upload_leaves_nothing(pool: Pool) -> None:
    with pytest.raises(BadTraceError):
        upload_recording(pool, io.BytesIO(ROW + b"{"), actor=ACTOR, name="x")
    with pytest.raises(InvalidFieldsError, match="one line"):
        upload_recording(pool, io.BytesIO(ROW), actor=ACTOR, name="two\nlines")
    assert not Recording.objects.exists()
    assert not kept_segments()


@pytest.mark.django_db
def test_window_over_the_limit_is_rejected_as_a_whole(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controlplane.request_log.recordings.kept_traces.MAX_ROWS", 3)
    record(rows(5))
    with pytest.raises(InvalidFieldsError, match="shorter window"):
        record_window(pool, BEGIN, BEGIN + timedelta(hours=1), actor=ACTOR)
    monkeypatch.setattr("controlplane.request_log.recordings.kept_traces.MAX_PLAIN_BYTES", 10)
    with pytest.raises(TooMuchTrafficError):
        written(read_recorded_rows(2))
    assert not kept_segments()


def kept_segments() -> int:
    return Segment.objects.filter(retention=Retention.KEPT).count()


def read_recorded_rows(count: int) -> list:
    from controlplane.request_log.recordings.recorded_row import Resalting

    return [Resalting(b"x").recorded(row, START) for row in rows(count)]


@pytest.mark.django_db
def test_total_size_of_recordings_is_limited(pool: Pool) -> None:
    upload_recording(pool, io.BytesIO(ROW), actor=ACTOR, name="one")
    with override_settings(KEPT_RECORDING_BYTES=10), pytest.raises(NoRoomError, match="Delete some"):
        upload_recording(pool, io.BytesIO(ROW), actor=ACTOR, name="two")


@pytest.mark.django_db(transaction=True)
def test_deletion_removes_trace_and_local_copy(pool: Pool) -> None:
    made = upload_recording(pool, io.BytesIO(ROW), actor=ACTOR, name="one")
    copy = recording_store().path(made.key)
    delete_recording(made, actor=ACTOR, why="done")
    assert not copy.exists()
    assert not kept_segments()
    with pytest.raises(RecordingGoneError):
        recording_store().path(made.key)
    assert AuditEvent.objects.filter(verb="recording.delete").count() == 1


@pytest.mark.django_db
def test_any_machine_reads_a_recording(pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controlplane.request_log.recordings.kept_traces.PART_BYTES", 100)
    made = upload_recording(pool, io.BytesIO(ROW * 20), actor=ACTOR, name="one")
    assert made.file_bytes > 100 or kept_segments() == 1
    with override_settings(STATE_DIR=tmp_path / "of another machine"):
        path = recording_store().path(made.key)
        assert path.is_relative_to(tmp_path / "of another machine")
        assert path.stat().st_mode & 0o777 == 0o600
        assert len(list(read_recorded(path))) == made.requests == 20
        assert [item.name for item in path.parent.iterdir()] == [path.name]


@pytest.mark.django_db
def test_unneeded_copies_are_deleted(pool: Pool, tmp_path: Path) -> None:
    store = RecordingStore(tmp_path)
    kept, lost = (upload_recording(pool, io.BytesIO(ROW), actor=ACTOR, name="one").key for _ in range(2))
    for key in (kept, lost):
        store.path(key)
    (tmp_path / "0123456789abcdef.1-2.part").touch()
    (tmp_path / "somebody else's").touch()
    now = time.time()
    assert store.sweep({kept}, now) == 0
    for path in tmp_path.iterdir():
        os.utime(path, (now - LEFT_OVER_S - 1,) * 2)
    assert store.sweep({kept}, now) == 2
    assert {path.name for path in tmp_path.iterdir()} == {f"{kept}.jsonl.gz", "somebody else's"}
    for name in ("../secrets", "", "x"):
        with pytest.raises(RecordingGoneError):
            store.path(name)
