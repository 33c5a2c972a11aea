"""From the bus to the ring, and from the ring to a recording that people keep."""

from __future__ import annotations

import gzip
import io
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.test import override_settings

from controlplane.jobs.recordings import record
from controlplane.models import AuditEvent, JobRun, Pool, Recording
from controlplane.recordings.recorded_row import read_recorded
from controlplane.recordings.ring import TrafficRing
from controlplane.recordings.shelf import LEFT_OVER_S, RecordingGoneError, RecordingShelf, TooMuchTrafficError
from controlplane.recordings.storage import TrafficStorage, recording_shelf, traffic_ring
from controlplane.recordings.upload import BadTraceError
from controlplane.services.actor import program
from controlplane.services.field_problems import InvalidFieldsError
from controlplane.services.recordings import (
    NoRoomError,
    delete_recording,
    record_window,
    recorded_words,
    upload_recording,
)
from controlplane.stream_intake import StreamIntake
from gateway.bus.bus import InProcessBus
from gateway.contracts.traffic_row import TOPIC, TrafficBatch, encode_batch
from tests.controlplane.recordings.traffic import START, batch, rows

ACTOR = program("test")
BEGIN = datetime.fromtimestamp(START, UTC)
ROW = b'{"timestamp": 0, "input_length": 600, "output_length": 2, "hash_ids": [1, 2]}\n'


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path) -> object:
    with override_settings(STATE_DIR=tmp_path):
        yield


@pytest.fixture
def storage() -> TrafficStorage:
    return TrafficStorage(StreamIntake(InProcessBus(), TOPIC), traffic_ring())


def tell(storage: TrafficStorage, count: int, begin: int = 0) -> None:
    storage.intake._hear(TOPIC, encode_batch(TrafficBatch("gateway-1", tuple(rows(count, begin)))))


@pytest.mark.django_db
def test_what_the_bus_brought_is_in_the_ring(storage: TrafficStorage) -> None:
    tell(storage, 3)
    tell(storage, 3, 3)
    assert record(storage) == 6
    assert list(traffic_ring().rows(START, START + 100)) == rows(6)
    assert record(storage) == 0
    run = JobRun.objects.get(job="recordings")
    assert run.progress == {"recorded": 6, "dropped_batches": 0}


@pytest.mark.django_db
def test_a_full_disk_loses_nothing_that_still_fits_in_memory(
    storage: TrafficStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(storage, 3)
    storage.intake._hear(TOPIC, b"no batch")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(TrafficRing, "append", full)
        assert record(storage) == 0
    JobRun.objects.update(lease_until=None)
    assert record(storage) == 3


@pytest.mark.django_db
def test_a_window_becomes_a_recording(pool: Pool) -> None:
    traffic_ring().append([batch(rows(30) + rows(5, 100, pool="other"))])
    made = record_window(pool, BEGIN + timedelta(seconds=10), BEGIN + timedelta(seconds=200), actor=ACTOR, why="try")
    assert (made.requests, made.name) == (20, "chat, 15 Jan 08:00:10 to 08:03:20 UTC")
    told = list(read_recorded(recording_shelf().path(made.key)))
    assert [row.timestamp for row in told] == [1000.0 * number for number in range(20)]
    assert made.statistics["sessions"] == 5
    event = AuditEvent.objects.get(verb="recording.create")
    assert (event.object_id, event.pool_slug, event.why) == (str(made.pk), "chat", "try")


@pytest.mark.django_db
def test_two_recordings_of_one_window_share_no_name(pool: Pool) -> None:
    traffic_ring().append([batch(rows(5))])
    end = BEGIN + timedelta(seconds=9)
    one, other = (
        list(read_recorded(recording_shelf().path(record_window(pool, BEGIN, end, actor=ACTOR).key))) for _ in range(2)
    )
    assert not {block for row in one for block in row.hash_ids} & {block for row in other for block in row.hash_ids}
    assert not {row.session_id for row in one} & {row.session_id for row in other}


@pytest.mark.django_db
def test_an_empty_window_says_what_there_is(pool: Pool) -> None:
    with pytest.raises(InvalidFieldsError, match="Nothing is recorded yet"):
        record_window(pool, BEGIN, BEGIN + timedelta(hours=1), actor=ACTOR)
    traffic_ring().append([batch(rows(5, pool="other"))])
    with pytest.raises(InvalidFieldsError, match="There is traffic from"):
        record_window(pool, BEGIN, BEGIN + timedelta(hours=1), actor=ACTOR)
    with pytest.raises(InvalidFieldsError, match="after begins_at"):
        record_window(pool, BEGIN, BEGIN, actor=ACTOR)
    assert not list((recording_shelf()._directory).iterdir())
    with override_settings(RECORDING_BYTES=0):
        assert "off" in recorded_words()


@pytest.mark.django_db
def test_an_upload_holds_no_name_and_no_text(pool: Pool) -> None:
    trace = ROW + ROW.replace(
        b'"hash_ids"', b'"session_id": "canary-a", "tenant": "canary-b", "prompt": "canary-c", "hash_ids"'
    )
    made = upload_recording(pool, io.BytesIO(trace), actor=ACTOR, name="mine")
    stored = gzip.decompress(recording_shelf().path(made.key).read_bytes())
    assert b"canary" not in stored
    assert stored.count(b"\n") == made.requests == 2


@pytest.mark.django_db
def test_a_bad_upload_leaves_nothing(pool: Pool) -> None:
    with pytest.raises(BadTraceError):
        upload_recording(pool, io.BytesIO(ROW + b"{"), actor=ACTOR, name="x")
    with pytest.raises(InvalidFieldsError, match="one line"):
        upload_recording(pool, io.BytesIO(ROW), actor=ACTOR, name="two\nlines")
    assert not Recording.objects.exists()
    kept = recording_shelf()._directory
    assert not kept.exists() or not list(kept.iterdir())


@pytest.mark.django_db
def test_a_window_over_the_limit_is_refused_whole(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controlplane.recordings.shelf.MAX_ROWS", 3)
    traffic_ring().append([batch(rows(5))])
    with pytest.raises(InvalidFieldsError, match="shorter window"):
        record_window(pool, BEGIN, BEGIN + timedelta(hours=1), actor=ACTOR)
    monkeypatch.setattr("controlplane.recordings.shelf.MAX_PLAIN_BYTES", 10)
    with pytest.raises(TooMuchTrafficError):
        recording_shelf().write(read_recorded_rows(2))
    assert not list(recording_shelf()._directory.glob("*"))


def read_recorded_rows(count: int) -> list:
    from controlplane.recordings.recorded_row import Resalting

    return [Resalting(b"x").recorded(each, START) for each in rows(count)]


@pytest.mark.django_db
def test_recordings_have_a_budget(pool: Pool) -> None:
    upload_recording(pool, io.BytesIO(ROW), actor=ACTOR, name="one")
    with override_settings(KEPT_RECORDING_BYTES=10), pytest.raises(NoRoomError, match="Delete some"):
        upload_recording(pool, io.BytesIO(ROW), actor=ACTOR, name="two")


@pytest.mark.django_db(transaction=True)
def test_deleting_takes_the_file_along(pool: Pool) -> None:
    made = upload_recording(pool, io.BytesIO(ROW), actor=ACTOR, name="one")
    delete_recording(made, actor=ACTOR, why="done")
    with pytest.raises(RecordingGoneError):
        recording_shelf().path(made.key)
    assert AuditEvent.objects.filter(verb="recording.delete").count() == 1


def test_what_a_killed_process_left_is_swept(tmp_path: Path) -> None:
    shelf = RecordingShelf(tmp_path)
    kept, lost = (shelf.write(read_recorded_rows(1)).key for _ in range(2))
    (tmp_path / "0123456789abcdef.part").touch()
    (tmp_path / "somebody else's").touch()
    now = time.time()
    assert shelf.sweep({kept}, now) == 0
    for path in tmp_path.iterdir():
        os.utime(path, (now - LEFT_OVER_S - 1,) * 2)
    assert shelf.sweep({kept}, now) == 2
    assert {path.name for path in tmp_path.iterdir()} == {f"{kept}.jsonl.gz", "somebody else's"}
    with pytest.raises(RecordingGoneError):
        shelf.path(lost)
    for name in ("../secrets", "", "x"):
        with pytest.raises(RecordingGoneError):
            shelf.path(name)
