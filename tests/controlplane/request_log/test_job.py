"""Batches from the bus are stored by one process at a time, and wait while they cannot be stored."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from django.db import OperationalError
from django.test import override_settings

from controlplane.platform.models.job_run import JobRun
from controlplane.platform.stream_intake import StreamIntake
from controlplane.request_log import job
from controlplane.request_log.job import RequestIntake, keep
from controlplane.request_log.models.decision_index import DecisionIndex
from controlplane.request_log.models.segment import Retention, Segment
from controlplane.request_log.store.segments import StoredCounts
from gateway.bus.bus import InProcessBus
from gateway.contracts.request_batch import TOPIC, encode_batch, pack_row, request_batch
from tests.controlplane.request_log.recordings.traffic import rows
from tests.controlplane.request_log.store.records import START, batch, on_time

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path) -> object:
    with override_settings(STATE_DIR=tmp_path):
        yield


@pytest.fixture
def bus() -> InProcessBus:
    return InProcessBus()


def intake(bus: InProcessBus) -> RequestIntake:
    return RequestIntake(StreamIntake(bus, TOPIC))


def send(bus: InProcessBus, name: str = "one") -> None:
    decisions = [on_time(f"{name}-{number}", START + number) for number in range(3)]
    bus.append(TOPIC, encode_batch(request_batch(name, list(map(pack_row, rows(4))), decisions)))


def test_job_stores_batches_received_over_the_bus(bus: InProcessBus) -> None:
    ours = intake(bus)
    send(bus)
    bus.append(TOPIC, b"rubbish")
    assert keep(ours) == StoredCounts(4, 3)
    assert keep(ours) == StoredCounts()
    assert JobRun.objects.get(job="requests").progress == {"stored": 3, "recorded": 4, "dropped_batches": 0}


def test_two_processes_that_received_the_same_batch_store_it_once(bus: InProcessBus) -> None:
    one, other = intake(bus), intake(bus)
    send(bus)
    assert (keep(one), keep(other)) == (StoredCounts(4, 3), StoredCounts())
    assert DecisionIndex.objects.count() == 3
    assert Segment.objects.count() == 2


def test_batch_that_cannot_be_stored_waits(bus: InProcessBus, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = intake(bus)
    send(bus)

    def full(*_: object) -> StoredCounts:
        raise OperationalError("database or disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(job, "store", full)
        assert keep(ours) == StoredCounts()
    JobRun.objects.update(lease_until=None)
    assert keep(ours) == StoredCounts(4, 3)


def test_limits_hold_even_if_nothing_can_be_stored(bus: InProcessBus, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = intake(bus)
    send(bus)
    keep(ours)

    def full(*_: object) -> StoredCounts:
        raise OperationalError("database or disk is full")

    monkeypatch.setattr(job, "store", full)
    send(bus, "another")
    with override_settings(DECISION_BYTES=0):
        keep(ours)
    assert set(Segment.objects.values_list("retention", flat=True)) == {Retention.TRAFFIC}


def test_batches_beyond_the_limit_are_dropped_and_counted(bus: InProcessBus, monkeypatch: pytest.MonkeyPatch) -> None:
    received = intake(bus).received
    value = batch([on_time("one")], "one")
    monkeypatch.setattr("controlplane.platform.stream_intake.MAX_WAITING_BYTES", 3 * len(value))
    threads = [threading.Thread(target=bus.append, args=(TOPIC, value)) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(received), received.dropped) == (3, 2)
    assert received.take() == [value] * 3
    assert len(received) == 0
