"""Small segments are merged, and stored data is read as before: once, in order, under the same names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from django.db import DatabaseError

from controlplane.request_log import job
from controlplane.request_log.models.decision_index import DecisionIndex
from controlplane.request_log.models.segment import MergedBatches, Retention, Segment
from controlplane.request_log.store import merging, segments
from controlplane.request_log.store.merged_batches import (
    KEPT_MS,
    MAX_SPANS,
    forget_merged_batches,
    joined_spans,
    merged_among,
)
from controlplane.request_log.store.merging import MERGED_BYTES, READERS_MS, drop_merged, merge_small
from controlplane.request_log.store.segments import (
    MERGED_MS,
    RecordGoneError,
    StoredCounts,
    read_decision,
    recorded_traffic,
    store,
)
from gateway.bus.bus import InProcessBus
from gateway.contracts.request_batch import TOPIC, encode_batch, pack_row, request_batch
from tests.controlplane.request_log.recordings.traffic import row
from tests.controlplane.request_log.store.records import START, on_time

pytestmark = pytest.mark.django_db
CLASSES = (Retention.DECISIONS, Retention.TRAFFIC)
HOUR_S = 3600


class Clock:
    """The wall clock of the storing process. Mutable: the seconds since START."""

    def __init__(self) -> None:
        self.passed_s = 0.0

    def __call__(self) -> float:
        return START + self.passed_s

    @property
    def ms(self) -> int:
        return int(self() * 1000)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    clock = Clock()
    monkeypatch.setattr("time.time", clock)
    yield clock
    monkeypatch.undo()


def second(number: int, source: str = "a" * 16) -> bytes:
    """Return the batch of one request that ended in this second."""
    decision = on_time(f"d-{number:06}", START + number)
    return encode_batch(request_batch(f"{source}-{number}", [pack_row(row(number))], [decision]))


def stored_seconds(clock: Clock, count: int, at_once: int = 1) -> None:
    """Store a batch per second, `at_once` batches per run of the job."""
    for number in range(0, count, at_once):
        clock.passed_s = float(number)
        store([second(item) for item in range(number, min(number + at_once, count))])


def merge(clock: Clock) -> None:
    for retention in CLASSES:
        merge_small(retention, 0, clock.ms)


def live(retention: Retention) -> int:
    return Segment.objects.filter(retention=retention, merged_at_ms=None).count()


def arrivals() -> list[float]:
    return [item.arrived_at - START for item in recorded_traffic(START - 1, START + 10 * HOUR_S)]


def assert_whole(count: int, every: int = 1) -> None:
    """Assert that all traffic, and one in `every` decisions, is read as it was stored."""
    assert arrivals() == [float(number) for number in range(count)]
    rows = list(DecisionIndex.objects.order_by("decision_id"))
    assert [item.decision_id for item in rows] == [f"d-{number:06}" for number in range(count)]
    assert all(read_decision(item).decision.decision_id == item.decision_id for item in rows[::every])


def test_two_hours_of_one_request_per_second_become_a_segment_per_minute_and_class(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = InProcessBus()
    intake, most = job.RequestIntake(job.StreamIntake(bus, TOPIC)), Counter[str]()
    # Ten seconds in one run, to save time, and so a third as many runs between two merges.
    monkeypatch.setattr(job, "BOUNDS_EVERY", 3)
    for number in range(0, 2 * HOUR_S, 10):
        clock.passed_s = float(number)
        for n in range(number, number + 10):
            bus.append(TOPIC, second(n))
        assert job.keep(intake) == StoredCounts(10, 10)
        rows = Counter(Segment.objects.values_list("retention", flat=True))
        most = Counter({n: max(count, most[n]) for n, count in rows.items()})
    for retention in CLASSES:
        assert live(retention) <= 2 * 64 + MERGED_MS // 1000 + 30
        assert most[retention] <= 2 * 64 + (MERGED_MS + READERS_MS) // 1000 + 2 * 30
    assert MergedBatches.objects.count() == 1
    assert_whole(2 * HOUR_S, every=37)


def test_merge_does_not_change_read_data(clock: Clock) -> None:
    stored_seconds(clock, 150)
    merge(clock)
    assert_whole(150)
    assert [live(retention) for retention in CLASSES] == [2 + 30, 2 + 30], "the last minute may get more"
    sizes = Segment.objects.filter(retention=Retention.TRAFFIC, batch__startswith="+").values_list("size", "data")
    assert all(size == len(data) + segments.SEGMENT_BYTES for size, data in sizes)


def test_reader_that_listed_segments_before_a_merge_reads_all_of_them(clock: Clock) -> None:
    stored_seconds(clock, 150)
    reading = recorded_traffic(START, START + 150)
    read = [next(reading).arrived_at - START for _ in range(20)]
    rows = list(DecisionIndex.objects.order_by("decision_id"))
    merge(clock)
    clock.passed_s += READERS_MS / 1000
    assert drop_merged(clock.ms) == 0
    read += [item.arrived_at - START for item in reading]
    assert read == [float(number) for number in range(150)]
    assert [read_decision(item).decision.decision_id for item in rows] == [item.decision_id for item in rows]
    clock.passed_s += 1
    assert drop_merged(clock.ms) == 2 * 120
    assert_whole(150)


def test_batch_repeated_after_its_segments_were_merged_is_not_stored_twice(clock: Clock) -> None:
    stored_seconds(clock, 150)
    merge(clock)
    clock.passed_s += READERS_MS / 1000 + 1
    drop_merged(clock.ms)
    assert store([second(number) for number in range(150)]) == StoredCounts()
    assert store([second(0, "b" * 16)]).requests == 1, "another gateway's"
    at_ms = MergedBatches.objects.get().at_ms
    assert forget_merged_batches(at_ms + KEPT_MS) == 0
    assert forget_merged_batches(at_ms + KEPT_MS + 1) == 1


def test_large_segments_are_kept_and_merged_ones_are_within_the_limit(clock: Clock) -> None:
    many = tuple(range(2**63, 2**63 + 3000))
    for number in range(12):
        clock.passed_s = float(number)
        store([encode_batch(request_batch(f"p-{number}", [pack_row(row(number, blocks=many))], ()))])
    one = Segment.objects.first()
    assert one is not None
    merge_small(Retention.TRAFFIC, 0, clock.ms)
    merged = Segment.objects.filter(batch__startswith="+").values_list("size", flat=True)
    assert merged
    assert all(MERGED_BYTES - one.size < size <= MERGED_BYTES for size in merged)
    assert arrivals() == [float(number) for number in range(12)]


def test_call_examines_a_limited_number_and_the_next_one_continues(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "LISTED_AT_ONCE", 100)
    stored_seconds(clock, 301)
    since_ms, calls = 0, []
    while not calls or calls[-1] != since_ms:
        calls.append(since_ms)
        since_ms = merge_small(Retention.TRAFFIC, since_ms, clock.ms)
    assert calls == [0, *(int(START * 1000) + minute * MERGED_MS for minute in range(1, 6))]
    assert live(Retention.TRAFFIC) == 5 + 1
    assert arrivals() == [float(number) for number in range(301)]


def test_many_segments_with_equal_times_do_not_block_merging(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "LISTED_AT_ONCE", 10)
    store([second(number) for number in range(25)])
    since_ms = merge_small(Retention.TRAFFIC, 0, clock.ms)
    assert since_ms > clock.ms
    assert sorted(arrivals()) == [float(number) for number in range(25)]


def test_unreadable_segment_keeps_its_neighbors_unmerged(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    stored_seconds(clock, 130)
    for retention in CLASSES:
        damaged = Segment.objects.filter(retention=retention).order_by("at_ms")[5]
        Segment.objects.filter(pk=damaged.pk).update(data=b"\xc1")
    merge(clock)
    assert "cannot be merged" in caplog.text
    assert [live(retention) for retention in CLASSES] == [60 + 1 + 10, 60 + 1 + 10]
    assert len(arrivals()) == 129
    with pytest.raises(RecordGoneError):
        read_decision(DecisionIndex.objects.get(decision_id="d-000005"))
    assert read_decision(DecisionIndex.objects.get(decision_id="d-000006")).decision.decision_id == "d-000006"


@pytest.mark.django_db(transaction=True)
def test_failed_merge_changes_nothing(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise DatabaseError("away")

    stored_seconds(clock, 61)
    with monkeypatch.context() as broken:
        broken.setattr(merging, "note_merged", fail)
        with pytest.raises(DatabaseError):
            merge(clock)
    assert live(Retention.DECISIONS) == 61
    assert_whole(61)


def test_segments_merged_by_another_process_are_not_merged_again(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    stored_seconds(clock, 61)
    listed = merging._groups

    def late(segments_: list[merging.Listed]) -> list[list[merging.Listed]]:
        monkeypatch.setattr(merging, "_groups", listed)
        merge(clock)
        return listed(segments_)

    monkeypatch.setattr(merging, "_groups", late)
    merge_small(Retention.TRAFFIC, 0, clock.ms)
    assert live(Retention.TRAFFIC) == 2
    assert_whole(61)


def test_sampled_read_covers_the_whole_time_range(clock: Clock) -> None:
    stored_seconds(clock, 2401, at_once=10)
    merge(clock)
    sampled = [item.arrived_at - START for item in recorded_traffic(START, START + 2401, segments=2, rows=5)]
    assert len(sampled) == pytest.approx(240, rel=0.1)
    per_five_minutes = Counter(int(at // 300) for at in sampled)
    assert all(per_five_minutes[number] == pytest.approx(30, rel=0.5) for number in range(8))


def test_names_are_stored_as_few_ranges() -> None:
    assert joined_spans([(4, 4), (1, 2), (3, 3), (9, 9), (3, 3)]) == [(1, 4), (9, 9)]
    odd = joined_spans((number, number) for number in range(1, 2 * MAX_SPANS + 4, 2))
    assert len(odd) == MAX_SPANS
    assert odd[:2] == [(1, 5), (7, 7)]
    MergedBatches.objects.create(source="p", numbers=[[1, 4], [9, 9]], at_ms=0)
    MergedBatches.objects.create(source="no number", numbers=[[0, 0]], at_ms=0)
    asked = ["p-1", "p-4", "p-5", "p-9", "q-1", "no number", "other"]
    assert merged_among(asked) == {"p-1", "p-4", "p-9", "no number"}
