"""Segments and index together: nothing is lost by a cut-off file or a dead process, and the budget holds."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from django.db import DatabaseError

from controlplane.decision_store import keeper as keeper_module
from controlplane.decision_store.intake import DecisionIntake, decoded
from controlplane.decision_store.keeper import FRAME_DECISIONS, ROW_BYTES, DecisionKeeper
from controlplane.decision_store.segment import HEAD, frame_of, frames, read_frame
from controlplane.decision_store.shelf import LEAST_SEGMENT_BYTES, RecordGoneError, SegmentShelf
from controlplane.decision_store.storage import DecisionStorage
from controlplane.frames import BadFrameError
from controlplane.jobs.decisions import keep
from controlplane.models import DecisionIndex, JobRun
from gateway.bus.bus import InProcessBus
from gateway.contracts.stored_decision import TOPIC, DecisionBatch, StoredDecision, encode_batch
from tests.controlplane.decision_store.records import START, on_time, stored

BUDGET = 8 << 20


@pytest.fixture
def shelf(tmp_path: Path) -> SegmentShelf:
    return SegmentShelf(tmp_path / "decisions", BUDGET)


@pytest.fixture
def keeper(db: None, shelf: SegmentShelf) -> DecisionKeeper:
    return DecisionKeeper(shelf, BUDGET)


def many(count: int, begin: int = 0) -> list[StoredDecision]:
    return [on_time(f"d-{number:06}", START + number) for number in range(begin, begin + count)]


def test_a_record_comes_back_as_it_was(shelf: SegmentShelf) -> None:
    record = stored()
    segment, offset = shelf.append([on_time("other"), record])
    assert shelf.read(segment, offset, 1) == record


def test_a_torn_tail_costs_only_itself(shelf: SegmentShelf) -> None:
    segment, _ = shelf.append(many(3))
    torn = frame_of(many(3, 10))
    path = shelf.path(segment)
    for cut in (1, 11, len(torn) - 1):
        whole = path.read_bytes()
        path.write_bytes(whole + torn[:cut])
        assert [len(decisions) for _, decisions in frames(path)] == [3]
        path.write_bytes(whole)


def test_a_flipped_byte_is_noticed(shelf: SegmentShelf) -> None:
    segment, offset = shelf.append(many(3))
    path = shelf.path(segment)
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    with pytest.raises(BadFrameError, match="checksum"):
        read_frame(path, offset)
    with pytest.raises(RecordGoneError, match="checksum"):
        shelf.read(segment, offset, 0)


@pytest.mark.parametrize("name", ["../secrets.seg", "x", "0123456789ab-1.seg.bak", ""])
def test_only_segments_are_read(shelf: SegmentShelf, name: str) -> None:
    with pytest.raises(RecordGoneError):
        shelf.read(name, 0, 0)


def test_a_file_without_our_head_holds_nothing(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"something else")
    assert list(frames(tmp_path / "x")) == []
    assert len(HEAD) == 8


def test_each_decision_is_stored_once(keeper: DecisionKeeper) -> None:
    assert keeper.store(many(FRAME_DECISIONS + 3)) == FRAME_DECISIONS + 3
    assert keeper.store([*many(2), *many(1, 1000), *many(1, 1000)]) == 1
    assert DecisionIndex.objects.count() == FRAME_DECISIONS + 4
    for row in DecisionIndex.objects.all():
        record = keeper.shelf.read(row.segment, row.offset, row.place)
        assert record.decision.decision_id == row.decision_id


def test_a_row_says_what_is_searched_for(keeper: DecisionKeeper) -> None:
    keeper.store([stored()])
    row = DecisionIndex.objects.get()
    assert (row.at_ms, row.pool, row.engine, row.tenant, row.session) == (
        int(START * 1000), "pool-a", "engine-17", "acme", "81f0c2a4b6d8",
    )  # fmt: skip
    assert (row.late, row.ttft_ms, row.queued_ms, row.regret_ms, row.regret_cause) == (True, 3970, 3360, 2730, "trade")
    assert (row.predicted_tokens, row.reported_tokens, row.mismatch) == (9216, 6144, "late_event")


def test_frames_whose_rows_were_lost_are_indexed_at_the_next_start(
    keeper: DecisionKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper.store(many(5))

    def fail(_rows: object) -> None:
        raise DatabaseError("away")

    with monkeypatch.context() as broken:
        broken.setattr(keeper_module, "insert_rows", fail)
        with pytest.raises(DatabaseError):
            keeper.store(many(5, 100))
    after = DecisionKeeper(SegmentShelf(keeper.shelf._directory, BUDGET), BUDGET)
    assert after.recover() == 5
    assert after.recover() == 0
    assert DecisionIndex.objects.count() == 10


def test_the_budget_holds_and_the_newest_stay(db: None, tmp_path: Path) -> None:
    budget = 4 * LEAST_SEGMENT_BYTES
    keeper = DecisionKeeper(SegmentShelf(tmp_path, budget), budget)
    for begin in range(0, 4096, 256):
        keeper.store(many(256, begin))
        keeper.shrink()
    usage = keeper.usage()
    assert usage.total_bytes <= budget
    assert usage.rows > 100
    assert DecisionIndex.objects.filter(decision_id="d-004095").exists()
    assert not DecisionIndex.objects.filter(decision_id="d-000000").exists()
    assert set(DecisionIndex.objects.values_list("segment", flat=True)) <= set(keeper.shelf.names())
    assert usage.rows * ROW_BYTES < budget


def storage(tmp_path: Path, bus: InProcessBus) -> DecisionStorage:
    return DecisionStorage(DecisionIntake(bus), DecisionKeeper(SegmentShelf(tmp_path, BUDGET), BUDGET))


def tell(bus: InProcessBus, *decisions: StoredDecision) -> None:
    bus.append(TOPIC, encode_batch(DecisionBatch("gateway-1", decisions)))


@pytest.mark.django_db
def test_the_job_stores_what_the_bus_brought(tmp_path: Path) -> None:
    bus = InProcessBus()
    ours = storage(tmp_path, bus)
    tell(bus, *many(3))
    bus.append(TOPIC, b"rubbish")
    assert keep(ours) == 3
    assert keep(ours) == 0
    assert JobRun.objects.get(job="decisions").progress == {"stored": 3, "dropped_batches": 0}


@pytest.mark.django_db
def test_two_processes_that_heard_the_same_store_it_once(tmp_path: Path) -> None:
    bus = InProcessBus()
    one, other = storage(tmp_path, bus), storage(tmp_path, bus)
    tell(bus, *many(3))
    assert (keep(one), keep(other)) == (3, 0)
    assert DecisionIndex.objects.count() == 3


@pytest.mark.django_db
def test_what_cannot_be_stored_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bus = InProcessBus()
    ours = storage(tmp_path, bus)
    keep(ours)
    tell(bus, *many(3))

    def full(_decisions: object) -> tuple[str, int]:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(ours.keeper.shelf, "append", full)
        assert keep(ours) == 0
    JobRun.objects.update(lease_until=None)
    assert keep(ours) == 3


def test_batches_beyond_the_limit_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    bus = InProcessBus()
    intake = DecisionIntake(bus)
    size = len(encode_batch(DecisionBatch("gateway-1", (stored(),))))
    monkeypatch.setattr("controlplane.stream_intake.MAX_WAITING_BYTES", 3 * size)
    threads = [threading.Thread(target=tell, args=(bus, stored())) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(intake), intake.dropped) == (3, 2)
    assert len(decoded(intake.take())) == 3
    assert len(intake) == 0
