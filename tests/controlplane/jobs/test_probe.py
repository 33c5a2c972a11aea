"""The probe job: one holder probes, ends with its lease, and hands over quickly."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connection

from controlplane.jobs import probe as job
from controlplane.jobs.lease import Lease, acquire
from controlplane.models import JobRun
from gateway.bus import Bus, InProcessBus
from gateway.snapshot import EngineEntry, Snapshot, encode_snapshot

pytestmark = pytest.mark.django_db(transaction=True)


class Prober:
    """Stands in for gateway.prober.probe_engines and notes from when to when it ran."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.ended = threading.Event()

    async def __call__(
        self, _targets: Callable[[], Sequence[EngineEntry]], _bus: Bus, stop: asyncio.Event, *, bearer: str
    ) -> None:
        self.started.set()
        await stop.wait()
        self.ended.set()


@pytest.fixture
def prober(monkeypatch: pytest.MonkeyPatch) -> Prober:
    stand_in = Prober()
    monkeypatch.setattr(job, "probe_engines", stand_in)
    return stand_in


@pytest.fixture
def holding(prober: Prober, bus: Bus) -> Any:
    """Run the job in a thread, as the worker does, until the test ends."""
    stop = threading.Event()

    def run(lease: Lease) -> None:
        job.hold(lease, bus, until_s=time.monotonic() + job.LEASE.total_seconds(), stop=stop)
        connection.close()

    threads: list[threading.Thread] = []

    def start(owner: str) -> threading.Thread:
        lease = acquire("probe", owner, job.LEASE)
        assert lease is not None
        threads.append(threading.Thread(target=run, args=(lease,)))
        threads[-1].start()
        assert prober.started.wait(5)
        return threads[-1]

    yield start, stop
    stop.set()
    for thread in threads:
        thread.join()


def test_a_held_lease_makes_a_wake_up_return_at_once(bus: Bus, prober: Prober) -> None:
    assert acquire("probe", "somebody", timedelta(minutes=1)) is not None
    job.probe()
    assert not prober.started.is_set()


def test_the_holder_outlives_its_first_term_and_reports_progress(holding: Any, prober: Prober) -> None:
    start, _ = holding
    start("a")
    assert not prober.ended.wait(job.LEASE.total_seconds() * 1.5)
    run = JobRun.objects.get()
    assert run.progress == {"engines": 0, "reachable": 0}
    assert acquire("probe", "b", job.LEASE) is None


def test_a_stop_ends_probing_and_frees_the_lease_at_once(holding: Any, prober: Prober) -> None:
    start, stop = holding
    thread = start("a")
    stop.set()
    thread.join(5)
    assert prober.ended.is_set()
    assert acquire("probe", "b", job.LEASE) is not None


def test_a_holder_whose_lease_was_taken_stops_probing(holding: Any, prober: Prober) -> None:
    start, _ = holding
    thread = start("a")
    JobRun.objects.update(lease_owner="b", fencing_token=99)
    thread.join(5)
    assert prober.ended.is_set()
    assert JobRun.objects.get().lease_owner == "b"


def test_probing_ends_with_its_term_while_a_renewal_hangs(
    holding: Any, prober: Prober, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, _ = holding
    hanging = threading.Event()
    monkeypatch.setattr(job, "renew", lambda *_args, **_options: hanging.wait(10) or None)
    start("a")
    assert prober.ended.wait(5)
    hanging.set()


def test_probing_ends_when_the_database_is_gone(holding: Any, prober: Prober, monkeypatch: pytest.MonkeyPatch) -> None:
    start, _ = holding

    def fail(*_args: Any, **_options: Any) -> None:
        raise DatabaseError("gone")

    monkeypatch.setattr(job, "renew", fail)
    thread = start("a")
    thread.join(5)
    assert prober.ended.is_set()


def test_a_dead_holder_is_replaced_within_two_seconds() -> None:
    from controlplane.celery import app

    wake_up_s = app.conf.beat_schedule["probe"]["schedule"]
    assert job.LEASE.total_seconds() + wake_up_s < 2.0


def test_engines_in_maintenance_are_not_probed_and_a_new_snapshot_is_followed() -> None:
    bus = InProcessBus()
    targets = job.snapshot_targets(bus)
    assert targets() == ()
    for version, states in ((1, {"a": "ready", "b": "maintenance", "c": "draining"}), (2, {"b": "ready"})):
        engines = tuple(
            EngineEntry(engine_id=name, name=name, pool_id="p", url=f"http://10.0.0.1/{name}", desired_state=state)
            for name, state in states.items()
        )
        bus.publish("snapshot", encode_snapshot(Snapshot(version=version, published_at=0.0, engines=engines)))
        expected = ["a", "c"] if version == 1 else ["b"]
        assert [entry.engine_id for entry in targets()] == expected
