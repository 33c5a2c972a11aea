"""Segments and index: a batch is stored once and completely, and each class keeps its limits."""

from __future__ import annotations

import pytest
from django.db import DatabaseError, connection
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from controlplane.request_log.models.decision_index import DecisionIndex
from controlplane.request_log.models.segment import Retention, Segment
from controlplane.request_log.store import segments
from controlplane.request_log.store.retention import shrink, used_bytes
from controlplane.request_log.store.segments import (
    APART_S,
    ROW_BYTES,
    RecordGoneError,
    StoredCounts,
    read_decision,
    recorded_span,
    recorded_traffic,
    store,
)
from gateway.contracts.request_batch import encode_batch, pack_row, request_batch
from gateway.contracts.stored_decision import StoredDecision
from gateway.contracts.traffic_row import TrafficRow
from tests.controlplane.request_log.recordings import traffic
from tests.controlplane.request_log.recordings.traffic import record, row, rows
from tests.controlplane.request_log.store.records import START, batch, keep, on_time, stored

pytestmark = pytest.mark.django_db


def many(count: int, begin: int = 0) -> list[StoredDecision]:
    return [on_time(f"d-{number:06}", START + number) for number in range(begin, begin + count)]


def within(begin: float = 0, end: float = 100) -> list[TrafficRow]:
    return list(recorded_traffic(START + begin, START + end))


def test_record_is_read_as_it_was_stored() -> None:
    record = stored()
    assert keep(on_time("other"), record) == StoredCounts(0, 2)
    assert read_decision(DecisionIndex.objects.get(decision_id=record.decision.decision_id)) == record


def test_a_batch_is_one_segment_of_each_class() -> None:
    value = encode_batch(request_batch("one", list(map(pack_row, rows(3))), many(2)))
    assert store([value]) == StoredCounts(3, 2)
    assert sorted(Segment.objects.values_list("batch", "retention")) == [("one", "decisions"), ("one", "traffic")]
    Segment.objects.update(at_ms=int(START * 1000))
    assert within() == rows(3)


def test_each_batch_is_stored_once() -> None:
    one, other = batch(many(3), "one"), batch(many(2, 10), "other")
    assert store([one, one]) == StoredCounts(0, 3)
    assert store([one, other]) == StoredCounts(0, 2)
    assert DecisionIndex.objects.count() == 5
    assert Segment.objects.count() == 2


def test_invalid_batch_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    bad = encode_batch(request_batch("bad", (), ()))[:-1]
    assert store([batch(many(1)), b"rubbish", bad]) == StoredCounts(0, 1)
    assert "cannot be read" in caplog.text


@pytest.mark.django_db(transaction=True)
def test_rows_and_segments_are_stored_atomically(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_rows: object) -> None:
        raise DatabaseError("away")

    with monkeypatch.context() as broken:
        broken.setattr(segments, "insert_rows", fail)
        with pytest.raises(DatabaseError):
            keep(*many(5))
    assert not Segment.objects.exists()
    assert keep(*many(5)) == StoredCounts(0, 5)


def test_rows_are_deleted_with_their_segment() -> None:
    keep(*many(2))
    keep(*many(2, 10))
    Segment.objects.order_by("pk")[:1].get().delete()
    assert list(DecisionIndex.objects.order_by("decision_id").values_list("decision_id", flat=True)) == [
        "d-000010", "d-000011",
    ]  # fmt: skip


def test_unreadable_record_reports_the_reason() -> None:
    keep(stored())
    row = DecisionIndex.objects.get()
    Segment.objects.update(data=b"not packed")
    with pytest.raises(RecordGoneError, match="cannot be read"):
        read_decision(row)
    Segment.objects.all().delete()
    with pytest.raises(RecordGoneError, match="dropped"):
        read_decision(row)


def test_row_has_the_searchable_fields() -> None:
    keep(stored())
    row = DecisionIndex.objects.get()
    assert (row.at_ms, row.pool, row.engine, row.tenant, row.session) == (
        int(START * 1000), "pool-a", "engine-17", "acme", "81f0c2a4b6d8",
    )  # fmt: skip
    assert (row.late, row.ttft_ms, row.queued_ms, row.regret_ms, row.regret_cause) == (
        True, 3970, 3360, 2730, "trade",
    )  # fmt: skip
    assert (row.predicted_tokens, row.reported_tokens, row.mismatch) == (9216, 6144, "late_event")


def test_size_limit_holds_and_the_newest_segments_are_kept() -> None:
    budget = 200_000
    for begin in range(0, 2048, 64):
        keep(*many(64, begin))
        shrink(Retention.DECISIONS, budget)
    assert used_bytes(Retention.DECISIONS) <= budget
    assert 100 < DecisionIndex.objects.count() < budget / ROW_BYTES
    assert DecisionIndex.objects.filter(decision_id="d-002047").exists()
    assert not DecisionIndex.objects.filter(decision_id="d-000000").exists()


def test_class_has_its_own_limits() -> None:
    keep(*many(3))
    for hours in range(4):
        record(rows(1, hours * 3600))
    assert shrink(Retention.TRAFFIC, 1 << 20, START + 3600) == 1
    assert [item.arrived_at - START for item in within(0, 10**6)] == [3600, 7200, 10800]
    assert shrink(Retention.TRAFFIC, 0) == 3
    assert DecisionIndex.objects.count() == 3


def test_deletion_reads_no_data() -> None:
    keep(*many(3))
    with CaptureQueriesContext(connection) as asked:
        assert shrink(Retention.DECISIONS, 0) == 1
    assert not [item["sql"] for item in asked if '"data"' in item["sql"]]


def test_traffic_is_returned_in_order_of_arrival() -> None:
    record(rows(3))
    record(rows(3, 10))
    assert within() == rows(3) + rows(3, 10)
    assert within(2, 11) == [row(2), row(10)]
    assert within(90, 95) == []
    Segment.objects.update(at_ms=int((START + 100 + APART_S + 1) * 1000))
    assert within() == [], "a request that ended this late is overlooked"


def test_unreadable_traffic_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    record(rows(1))
    record(rows(1, 1))
    Segment.objects.filter(pk=Segment.objects.earliest("pk").pk).update(data=b"\xc1")
    assert within() == rows(1, 1)
    assert "cannot be read" in caplog.text


def test_start_of_recorded_traffic_is_reported() -> None:
    assert recorded_span() is None
    record(rows(1))
    record(rows(1, 60))
    assert recorded_span() == (START, START + 60)


def test_no_traffic_is_stored_if_recording_is_off() -> None:
    with override_settings(RECORDING_BYTES=0):
        assert store([traffic.batch(rows(3))]) == StoredCounts()
