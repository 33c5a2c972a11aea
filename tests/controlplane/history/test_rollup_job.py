"""The roll-up job: one process writes in few transactions, and every process receives the hour."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from django.db import DatabaseError
from pytest_django import DjangoAssertNumQueries

from controlplane.history import rollups as rollup
from controlplane.history.collector import FleetCollector
from controlplane.history.models.rollup import Rollup
from controlplane.history.rollups import HOUR_TOPIC, StoredHour
from controlplane.platform.jobs.lease import acquire
from controlplane.platform.live_fleet.samples import FleetSamples
from controlplane.platform.models.job_run import JobRun
from gateway.bus.bus import InProcessBus
from gateway.contracts.fleet_sample import TOPIC
from tests.controlplane.history.buckets import START, samples_of

pytestmark = pytest.mark.django_db


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
