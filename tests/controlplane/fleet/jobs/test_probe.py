"""The probe job: one process probes under a lease, stops with it, and is replaced quickly."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connection
from django.utils import timezone
from pytest_django.fixtures import Settings

from controlplane.fleet.jobs import probe as job
from controlplane.platform.jobs.lease import acquire
from controlplane.platform.models.job_run import JobRun
from gateway.bus.bus import Bus, InProcessBus
from gateway.contracts.snapshot import EngineEntry, Snapshot, encode_snapshot
from tests.patience import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


class Prober:
    """Replaces gateway.engines.prober.probe_engines and records when it ran."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.ended = threading.Event()
        self.probed: dict[int, tuple[int, int]] = {}
        """Fencing token and number of engines at the start, by shard."""
        self.timeout_s = 0.0

    async def __call__(
        self,
        targets: Callable[[], Sequence[EngineEntry]],
        _bus: Bus,
        stop: asyncio.Event,
        *,
        timeout_s: float,
        bearer: str,
        shard: int,
        fence: int,
    ) -> None:
        self.timeout_s = timeout_s
        self.probed[shard] = fence, len(targets())
        self.started.set()
        await stop.wait()
        self.ended.set()


@pytest.fixture
def prober(monkeypatch: pytest.MonkeyPatch) -> Prober:
    engine_candidate = Prober()
    monkeypatch.setattr(job, "probe_engines", engine_candidate)
    return engine_candidate


@pytest.fixture
def holding(prober: Prober, bus: Bus) -> Any:
    """Run the job in a thread, as the worker does, until the test ends."""
    stop = threading.Event()

    def run(holder: job.ShardHolder) -> None:
        holder.take(time.monotonic())
        holder.hold(stop)
        connection.close()

    threads: list[threading.Thread] = []

    def start(owner: str) -> threading.Thread:
        if bus.latest("snapshot") is None:
            publish_engines(bus, 1)
        threads.append(threading.Thread(target=run, args=(job.ShardHolder(bus, owner),)))
        threads[-1].start()
        assert prober.started.wait(5)
        return threads[-1]

    yield start, stop
    stop.set()
    for thread in threads:
        thread.join()


def publish_engines(bus: Bus, count: int, version: int = 1) -> None:
    engines = tuple(
        EngineEntry(engine_id=f"e-{n}", name=f"e-{n}", pool_id="p", url=f"http://10.0.0.1:{n + 1}")
        for n in range(count)
    )
    bus.publish("snapshot", encode_snapshot(Snapshot(version=version, published_at=0.0, engines=engines)))


def test_wake_up_returns_at_once_while_another_process_holds_the_lease(bus: Bus, prober: Prober) -> None:
    assert acquire("probe", "somebody", timedelta(minutes=1)) is not None
    job.probe()
    assert not prober.started.is_set()


def test_holder_renews_its_lease_and_reports_progress(holding: Any, prober: Prober, settings: Settings) -> None:
    settings.PROBE_TIMEOUT_S = 7
    start, _ = holding
    start("a")
    assert prober.timeout_s == 7.0
    assert not prober.ended.wait(job.LEASE.total_seconds() * 1.5)
    run = JobRun.objects.get()
    assert run.progress == {"engines": 1, "reachable": 0, "shards": 1}
    assert acquire("probe", "b", job.LEASE) is None


def test_without_engines_nothing_is_probed_and_no_lease_is_held(holding: Any, bus: Bus, prober: Prober) -> None:
    job.probe()
    assert not JobRun.objects.exists()
    start, _ = holding
    thread = start("a")
    publish_engines(bus, 0, version=2)
    thread.join(5)
    assert (prober.ended.is_set(), JobRun.objects.get().state) == (True, "done")


def test_stop_ends_probing_and_releases_the_lease_at_once(holding: Any, prober: Prober) -> None:
    start, stop = holding
    thread = start("a")
    stop.set()
    thread.join(5)
    assert prober.ended.is_set()
    assert acquire("probe", "b", job.LEASE) is not None


def test_holder_that_loses_its_lease_stops_probing(holding: Any, prober: Prober) -> None:
    start, _ = holding
    thread = start("a")
    JobRun.objects.update(lease_owner="b", fencing_token=99, lease_until=timezone.now() + timedelta(minutes=1))
    thread.join(5)
    assert prober.ended.is_set()
    assert JobRun.objects.get().lease_owner == "b"


def test_probing_ends_with_its_term_if_a_renewal_hangs(
    holding: Any, prober: Prober, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, _ = holding
    hanging = threading.Event()

    def hang(*_args: Any, **_options: Any) -> None:
        hanging.wait(10)

    monkeypatch.setattr(job, "renew", hang)
    start("a")
    assert prober.ended.wait(5)
    hanging.set()


def test_probing_ends_if_the_database_is_unavailable(
    holding: Any, prober: Prober, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, _ = holding

    def fail(*_args: Any, **_options: Any) -> None:
        raise DatabaseError("gone")

    monkeypatch.setattr(job, "renew", fail)
    thread = start("a")
    thread.join(5)
    assert prober.ended.is_set()


def test_crashed_holder_is_replaced_within_two_seconds() -> None:
    from controlplane.project.celery import app

    wake_up_s = app.conf.beat_schedule["probe"]["schedule"]
    assert job.LEASE.total_seconds() + max(wake_up_s, job.RENEW_S) < 2.0


def test_engines_in_maintenance_are_not_probed_and_new_snapshots_are_followed() -> None:
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


def test_process_holds_several_shards_with_a_lease_for_each(holding: Any, prober: Prober, bus: InProcessBus) -> None:
    publish_engines(bus, 250)
    start, stop = holding
    thread = start("a")
    wait_until(lambda: len(prober.probed) == 3)
    assert sum(engines for _, engines in prober.probed.values()) == 250
    tokens = dict(JobRun.objects.values_list("shard", "fencing_token"))
    assert {shard: fence for shard, (fence, _) in prober.probed.items()} == tokens
    stop.set()
    thread.join(5)
    assert not JobRun.objects.exclude(lease_owner="").exists()


def test_unneeded_shards_end_and_new_ones_start(holding: Any, prober: Prober, bus: InProcessBus) -> None:
    publish_engines(bus, 150)
    start, _ = holding
    start("a")
    wait_until(lambda: len(prober.probed) == 2)
    publish_engines(bus, 90, version=2)
    wait_until(lambda: JobRun.objects.filter(shard=1, state="done").exists())
    publish_engines(bus, 201, version=3)
    wait_until(lambda: set(prober.probed) == {0, 1, 2})
    assert JobRun.objects.get(shard=1, state="active").fencing_token == 2


def test_shards_above_the_preferred_number_are_taken_only_after_a_delay(bus: InProcessBus) -> None:
    publish_engines(bus, 100 * (job.PREFERRED_SHARDS + 2))
    first, second = job.ShardHolder(bus, "a"), job.ShardHolder(bus, "b")
    first.take(10.0)
    assert set(first.held) == set(range(job.PREFERRED_SHARDS))
    first.take(10.0 + job.SPARE_S - 0.1)
    assert len(first.held) == job.PREFERRED_SHARDS
    second.take(20.0)
    assert set(second.held) == {job.PREFERRED_SHARDS, job.PREFERRED_SHARDS + 1}
    JobRun.objects.filter(lease_owner="b").update(lease_until=timezone.now())
    first.take(30.0)
    first.take(30.0 + job.SPARE_S)
    assert len(first.held) == job.PREFERRED_SHARDS + 2


def test_shard_whose_probing_failed_is_taken_again(holding: Any, prober: Prober, monkeypatch: Any) -> None:
    failed = threading.Event()

    async def fail_once(*args: Any, **options: Any) -> None:
        if not failed.is_set():
            failed.set()
            prober.started.set()
            raise RuntimeError("a surprise")
        await prober(*args, **options)

    monkeypatch.setattr(job, "probe_engines", fail_once)
    start, _ = holding
    start("a")
    wait_until(lambda: prober.probed.get(0) == (2, 1))
