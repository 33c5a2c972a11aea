"""Roll-ups are stored once, merged into long intervals, deleted after their retention, and survive a restart.

The roll-up job: one process writes in few transactions, and every process receives the hour.
"""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from django.db import DatabaseError
from pytest_django import DjangoAssertNumQueries

from controlplane.history import rollups
from controlplane.history import rollups as rollup
from controlplane.history.collector import FINE_S, WAITING_COLUMNS, FleetCollector
from controlplane.history.merge import merge
from controlplane.history.models.rollup import Rollup, RollupRoster
from controlplane.history.rollups import COARSE_S, FACTOR, HOUR_TOPIC, StoredHour, forget, store_finished, stored_hour
from controlplane.history.store import read_past
from controlplane.platform.jobs.lease import acquire
from controlplane.platform.live_fleet.samples import FleetSamples
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.models.job_run import JobRun
from gateway.bus.bus import InProcessBus
from gateway.contracts.fleet_sample import TOPIC, FleetSample
from tests.controlplane.history.buckets import START, samples_of
from tests.web.fake_fleet import LOST_AT

pytestmark = pytest.mark.django_db
FIRST = int(START // FINE_S)


def fed(samples: list[FleetSample]) -> FleetCollector:
    collector = FleetCollector()
    for sample in samples:
        collector.take(sample)
    return collector


def run(collector: FleetCollector, at: float) -> int:
    """Store finished intervals and return the number of new rows."""
    columns = collector.finished(at)
    return store_finished(collector, columns, at).fine if columns else 0


def test_only_finished_intervals_are_stored() -> None:
    collector = fed(samples_of(4, 25))
    assert run(collector, START + 20.5) == 2  # one interval, two pools; the second has not settled
    assert run(collector, START + 21) == 2
    assert run(collector, START + 22) == 0
    assert sorted(Rollup.objects.values_list("index", "pool")) == [
        (FIRST, "pool-0"), (FIRST, "pool-1"), (FIRST + 1, "pool-0"), (FIRST + 1, "pool-1"),
    ]  # fmt: skip


def test_stored_columns_equal_the_collected_ones() -> None:
    collector = fed(samples_of(5, 41))
    columns = collector.finished(START + 41)
    store_finished(collector, columns, START + 41)
    past = read_past(FINE_S, FIRST, FIRST + 10)
    assert [column.index for column in past.columns] == [column.index for column in columns]
    for stored, column in zip(past.columns, columns, strict=True):
        assert stored.roster == column.roster
        assert stored.samples == column.samples
        assert list(stored.floats[1]) == pytest.approx(list(column.floats[1]), rel=6e-4)
        assert stored.codes == column.codes
    assert past.columns[0].roster is past.columns[1].roster
    assert past.pools["pool-0"].name == "chat-70b"


def test_two_processes_store_no_interval_twice() -> None:
    samples = samples_of(4, 31)
    one, other = fed(samples), fed(samples)
    assert run(one, START + 31) == 6
    run(other, START + 31)
    assert Rollup.objects.filter(seconds=FINE_S).count() == 6


def test_earlier_intervals_survive_a_restart_and_new_ones_follow() -> None:
    run(fed(samples_of(4, 31)), START + 31)
    before = read_past(FINE_S, FIRST, FIRST + 100).columns
    run(fed(samples_of(4, 30, begin=60)), START + 91)
    columns = read_past(FINE_S, FIRST, FIRST + 100).columns
    assert [column.index - FIRST for column in columns] == [0, 1, 2, 6, 7, 8]
    assert [list(column.floats[0]) for column in columns[:3]] == [list(column.floats[0]) for column in before]
    assert sorted(stored_hour(START + 91).peaks["pool-0"]) == [FIRST + offset for offset in (0, 1, 2, 6, 7, 8)]


def test_long_intervals_are_merged_from_short_ones_once_they_ended() -> None:
    begin = -START % COARSE_S
    collector = fed(samples_of(4, 260, begin=begin))
    for end in range(30, 300, 30):
        run(collector, START + begin + end)
    coarse = read_past(COARSE_S, 0, 1 << 40)
    first = int((START + begin) // COARSE_S)
    assert [column.index for column in coarse.columns] == [first, first + 1]
    fine = read_past(FINE_S, first * FACTOR, first * FACTOR + FACTOR - 1).columns
    assert len(fine) == FACTOR
    assert list(coarse.columns[0].floats[1]) == pytest.approx(list(merge(0, fine).floats[1]), rel=6e-4)
    assert coarse.columns[0].samples == 240


def test_long_intervals_are_stored_before_and_after_a_long_pause() -> None:
    begin = -START % COARSE_S
    run(fed(samples_of(2, 125, begin=begin)), START + begin + 125)
    later = begin + 400 * COARSE_S
    run(fed(samples_of(2, 125, begin=later)), START + later + 125)
    indexes = [column.index - int((START + begin) // COARSE_S) for column in read_past(COARSE_S, 0, 1 << 40).columns]
    assert indexes == [0, 400]


def test_markers_are_stored_once_and_restored() -> None:
    collector = fed(samples_of(5, 80, begin=LOST_AT - 20))
    for end in range(10, 100, 10):
        run(collector, START + LOST_AT - 20 + end)
    past = read_past(FINE_S, FIRST, FIRST + 100)
    kinds = [marker.kind for marker in past.markers]
    assert kinds.count("lost") == 1
    lost = next(marker for marker in past.markers if marker.kind == "lost")
    assert (lost.label, lost.text) == ("e-05", "e-05 is lost: 3 connects rejected; a direct probe runs every second")
    assert kinds.count("draining") == 1


def test_a_lost_engine_is_one_audit_event_whatever_the_number_of_processes() -> None:
    samples = samples_of(4, 30, begin=LOST_AT - 5)
    for collector in (fed(samples), fed(samples)):
        run(collector, samples[-1].at + 11)
    event = AuditEvent.objects.get(verb="engine.lost")
    assert (event.actor_name, event.pool_slug) == ("fleet history", "pool-1")
    assert event.why == "e-04 is lost: 3 connects rejected; a direct probe runs every second"


def test_marker_that_grows_after_its_interval_was_stored_is_restored_grown() -> None:
    samples = samples_of(3, 60, step_s=1)

    def state(at: float, begins: float, serves: float) -> str:
        return "unknown" if at < begins else "starting" if at < serves else "serving"

    grown = []
    for sample in samples:
        t = sample.at - START
        first = msgspec.structs.replace(sample.engines[0], state=state(t, 5, 25))
        second = msgspec.structs.replace(sample.engines[1], state=state(t, 8, 33))
        grown.append(msgspec.structs.replace(sample, engines=(first, second, *sample.engines[2:])))
    collector = fed([])
    for sample in grown:
        collector.take(sample)
        run(collector, sample.at)
    (marker,) = read_past(FINE_S, FIRST, FIRST + 100).markers
    assert (marker.label, marker.at) == ("2 started", START + 5)


def test_old_rows_are_deleted_with_their_roster() -> None:
    run(fed(samples_of(2, 21)), START + 21)
    run(fed(samples_of(3, 21, begin=3600)), START + 3621)
    assert forget(START + 26 * 3600 + 600) == 4
    assert not Rollup.objects.filter(seconds=FINE_S, index__lt=FIRST + 100).exists()
    assert Rollup.objects.filter(seconds=FINE_S).count() == 4
    assert forget(START + 31 * 86_400) == Rollup.objects.count() + 6
    assert not RollupRoster.objects.exists()


def test_number_of_rows_is_limited_whatever_their_age(monkeypatch: pytest.MonkeyPatch) -> None:
    run(fed(samples_of(2, 101)), START + 101)
    monkeypatch.setitem(rollups.MAX_ROWS, FINE_S, 5)
    forget(START + 101)
    kept = set(Rollup.objects.filter(seconds=FINE_S).values_list("index", flat=True))
    assert kept == {FIRST + 8, FIRST + 9}


def test_unreadable_row_is_a_gap_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    run(fed(samples_of(2, 31)), START + 31)
    Rollup.objects.filter(index=FIRST + 1).update(data=b"torn")
    assert [column.index - FIRST for column in read_past(FINE_S, FIRST, FIRST + 5).columns] == [0, 2]
    assert "unreadable" in caplog.text


def test_database_outage_of_ten_minutes_loses_nothing() -> None:
    collector = fed(samples_of(2, FINE_S * (WAITING_COLUMNS + 5), step_s=5))
    waiting = collector.finished(START + FINE_S * (WAITING_COLUMNS + 5))
    assert WAITING_COLUMNS - 1 <= len(waiting) <= WAITING_COLUMNS


@pytest.fixture
def own_bus() -> InProcessBus:
    return InProcessBus()


@pytest.fixture
def collector(own_bus: InProcessBus) -> FleetCollector:
    collector = FleetCollector()
    FleetSamples(own_bus).subscribe(collector.take)
    for sample in samples_of(4, 31):
        own_bus.publish(TOPIC, msgspec.msgpack.encode(sample))
    return collector


def test_job_stores_and_publishes_the_hour_and_its_progress(collector: FleetCollector, own_bus: InProcessBus) -> None:
    rollup.keep(collector, own_bus, START + 31)
    assert Rollup.objects.count() == 6
    hour = msgspec.msgpack.decode(own_bus.latest(HOUR_TOPIC), type=StoredHour)
    assert len(hour.peaks["pool-0"]) == 3
    assert JobRun.objects.get(job="rollup").progress == {"rows_of_10_s": 6, "of_120_s": 0, "expired": 0}
    rollup.keep(collector, own_bus, START + 41)
    run = JobRun.objects.get(job="rollup")
    assert run.progress["rows_of_10_s"] == Rollup.objects.count() > 6


def test_job_writes_nothing_before_an_interval_has_ended(
    own_bus: InProcessBus, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    collector = FleetCollector()
    rollup.keep(collector, own_bus, START)
    with django_assert_num_queries(0):
        rollup.keep(collector, own_bus, START + 5)
    assert not JobRun.objects.exists()


def test_job_leaves_the_work_to_the_holder_of_the_lease(collector: FleetCollector, own_bus: InProcessBus) -> None:
    assert acquire("rollup", "another process", timedelta(minutes=1)) is not None
    rollup.keep(collector, own_bus, START + 31)
    assert Rollup.objects.count() == 0
    assert len(collector.finished(START + 31)) == 3


def test_interval_that_could_not_be_stored_is_stored_by_the_next_run(
    collector: FleetCollector, own_bus: InProcessBus, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise DatabaseError("disk full")

    with monkeypatch.context() as broken:
        broken.setattr(rollup, "store_finished", fail)
        rollup.keep(collector, own_bus, START + 31)
    assert "cannot be stored" in caplog.text
    JobRun.objects.update(lease_until=None)
    rollup.keep(collector, own_bus, START + 31)
    assert Rollup.objects.count() == 6
