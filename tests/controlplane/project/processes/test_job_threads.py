"""Celery's worker and beat as threads of this process."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery
from django.conf import settings
from kombu.transport.redis import Transport

from controlplane.platform.bus import LOCAL_BUS, broker_url, get_bus
from controlplane.platform.jobs.cooperative_stop import stop_requested
from controlplane.platform.jobs.wake import job_queues, wake
from controlplane.project.celery import app as program
from controlplane.project.processes.job_threads import (
    BEAT,
    JOBS,
    QUEUES,
    JobThreads,
    MonotonicScheduler,
    WaitingWakeUps,
)
from gateway.bus.bus_metrics import WAKE_UPS
from tests.patience import wait_until
from tests.private_redis import PrivateRedis

WAIT_S = 10.0
OUTAGE_S = 60.0
REJECTED = 150
"""Connections that a broker rejects in its outage. Celery by default gives up after a hundred, about 46 minutes."""
RETRIES = ("broker_connection_max_retries", "broker_connection_retry_on_startup")


@pytest.fixture
def rejected(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Make the broker reject the first attempts of each thread, without delays; return the number of rejections."""
    rejected = Counter[str]()
    establish = Transport.establish_connection

    def connect(transport: Any) -> Any:
        thread = threading.current_thread().name
        if thread.startswith("celery-") and rejected[thread] < REJECTED:
            rejected[thread] += 1
            raise transport.connection_errors[0]("the broker is away")
        return establish(transport)

    monkeypatch.setattr(Transport, "establish_connection", connect)
    monkeypatch.setattr("kombu.utils.functional.sleep", lambda _seconds: None)
    return rejected


@pytest.fixture
def app(bus_server: PrivateRedis, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Celery]:
    """Return an application with the program's transport options and its own queues."""
    with monkeypatch.context() as environment:
        environment.setenv(LOCAL_BUS, bus_server.url)
        app = Celery("job-threads", broker=broker_url(), set_as_current=False, fixups=[])
    app.conf.update(
        broker_transport_options=settings.CELERY_BROKER_TRANSPORT_OPTIONS
        | {"global_keyprefix": f"{request.node.name}:"},
        task_ignore_result=True,
        task_default_queue=job_queues("jobs")[0],
        task_routes={"long": {"queue": job_queues("probe")[0]}},
        worker_hijack_root_logger=False,
    )
    yield app
    app.close()
    program.set_default()


@pytest.fixture
def threads(app: Celery) -> Iterator[JobThreads]:
    """Return worker and beat before their start, and stop them at the end."""
    threads = JobThreads(app)
    yield threads
    threads.stop()
    stop_requested.clear()


def running() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


def test_beat_wakes_a_job_repeatedly(app: Celery, threads: JobThreads) -> None:
    woken: list[Any] = []
    twice = threading.Event()

    def wake() -> None:
        woken.append(time.monotonic())
        if len(woken) == 2:
            twice.set()

    app.task(wake, name="wake", shared=False)
    app.conf.beat_schedule = {"wake": {"task": "wake", "schedule": 0.2}}
    threads.start()
    assert twice.wait(WAIT_S)


@pytest.mark.parametrize(("woken_by", "woken"), [((b"a", b"b"), (b"b", b"a")), ((b"b", b"a"), (b"a", b"b"))])
def test_schedule_wakes_jobs_of_a_worker_one_rotation_step_away(
    app: Celery, settings: Any, woken_by: tuple[bytes, bytes], woken: tuple[bytes, bytes]
) -> None:
    settings.FLEET_SECRET, settings.FLEET_SECRET_ALSO = woken
    jobs, ready, done = JobThreads(app, (JOBS,)), threading.Event(), threading.Event()
    app.task(ready.set, name="ready", shared=False)
    app.task(done.set, name="wake", shared=False)
    jobs.start()
    try:

        def is_ready() -> bool:
            app.send_task("ready", queue=job_queues("jobs")[0])
            return ready.wait(0.1)

        # Its queues are those of its start, which it consumes a moment later; the schedule's process has others.
        wait_until(is_ready)
        settings.FLEET_SECRET, settings.FLEET_SECRET_ALSO = woken_by
        app.send_task("wake", queue=job_queues("jobs")[0])
        assert done.wait(WAIT_S)
    finally:
        jobs.stop()
        # A worker that outlasts its stop would go on with the next start, and take the wake-ups of the next test.
        wait_until(lambda: "celery-jobs" not in running())
        stop_requested.clear()


def test_beat_and_jobs_can_run_separately(app: Celery) -> None:
    woken = threading.Event()

    def wake() -> None:
        woken.set()

    app.task(wake, name="wake", shared=False)
    app.conf.beat_schedule = {"wake": {"task": "wake", "schedule": 0.2}}
    beat, jobs = JobThreads(app, (BEAT,)), JobThreads(app, (JOBS,))
    beat.start()
    assert not woken.wait(1.0), "a schedule without a worker ran a job"
    jobs.start()
    try:
        assert woken.wait(WAIT_S)
    finally:
        jobs.stop()
        beat.stop()
        stop_requested.clear()


def test_long_job_on_its_queue_does_not_delay_others_and_stops_on_request(app: Celery, threads: JobThreads) -> None:
    running, ended, short_done = threading.Event(), threading.Event(), threading.Event()

    def long() -> None:
        running.set()
        stop_requested.wait(WAIT_S)
        ended.set()

    app.task(long, name="long", shared=False)
    app.task(short_done.set, name="short", shared=False)
    threads.start()
    app.send_task("long")
    assert running.wait(WAIT_S)
    app.send_task("short")
    assert short_done.wait(WAIT_S)
    assert not ended.is_set()
    threads.stop()
    assert ended.wait(WAIT_S)


def test_stopping_ends_both_threads(app: Celery, threads: JobThreads) -> None:
    started = threading.Event()
    app.task(started.set, name="short", shared=False)
    threads.start()
    app.send_task("short")
    assert started.wait(WAIT_S)
    assert {"celery-jobs", "celery-beat"} <= running()
    threads.stop()
    assert not {"celery-jobs", "celery-beat"} & running()


def test_worker_consumes_every_queue_that_jobs_use() -> None:
    routed = {route["queue"] for route in program.conf.task_routes.values()}
    assert routed | {program.conf.task_default_queue} == {job_queues(name)[0] for name in QUEUES}


def test_every_scheduled_job_exists() -> None:
    program.loader.import_default_modules()
    assert {entry["task"] for entry in program.conf.beat_schedule.values()} <= set(program.tasks)


def test_part_that_ends_by_itself_is_reported(app: Celery, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []
    notified = threading.Event()

    def end(part: str) -> None:
        ended.append(part)
        notified.set()

    def fail(*_args: object, **_kwargs: object) -> None:
        raise OSError("the broker is gone for good")

    threads = JobThreads(app, (BEAT,), on_end=end)
    monkeypatch.setattr(MonotonicScheduler, "tick", fail)
    threads.start()
    assert notified.wait(WAIT_S)
    assert ended == ["beat"]
    threads.stop()
    stop_requested.clear()


def test_stopped_parts_are_not_reported_as_ended(app: Celery) -> None:
    ended: list[str] = []
    threads = JobThreads(app, on_end=ended.append)
    threads.start()
    threads.stop()
    stop_requested.clear()
    for part in ("celery-jobs", "celery-beat"):
        for thread in threading.enumerate():
            if thread.name == part:
                thread.join(WAIT_S)
    assert ended == []


def test_woken_jobs_are_published_on_the_bus(app: Celery, threads: JobThreads) -> None:
    received = threading.Event()
    unsubscribe = get_bus().subscribe(WAKE_UPS, lambda _topic, _value: received.set())
    app.task(threading.Event().set, name="short", shared=False)
    threads.start()
    app.send_task("short")
    assert received.wait(WAIT_S)
    unsubscribe()


@pytest.mark.django_db(transaction=True)
def test_job_that_a_person_waits_for_is_woken_early(app: Celery, threads: JobThreads) -> None:
    """The schedule alone would take a day."""
    woken, twice = threading.Event(), threading.Event()

    def run() -> None:
        (twice if woken.is_set() else woken).set()

    app.task(run, name="controlplane.waited_for", shared=False)
    app.conf.beat_schedule = {"what-if": {"task": "controlplane.waited_for", "schedule": 86_400.0}}
    threads.start()
    assert woken.wait(WAIT_S), "at the start all are due"
    wake(["waited_for"])
    assert twice.wait(WAIT_S)


def test_jobs_recover_after_a_broker_outage_of_any_length(app: Celery, rejected: Counter[str]) -> None:
    over, woken, ended = threading.Event(), threading.Event(), list[str]()

    def wake() -> None:
        woken.set()
        over.set()

    def end(part: str) -> None:
        ended.append(part)
        over.set()

    app.conf.update({name: program.conf[name] for name in RETRIES})
    app.task(wake, name="wake", shared=False)
    app.conf.beat_schedule = {"wake": {"task": "wake", "schedule": 0.2}}
    threads = JobThreads(app, on_end=end)
    threads.start()
    try:
        assert over.wait(OUTAGE_S)
    finally:
        threads.stop()
        stop_requested.clear()
    assert ended == []
    assert woken.is_set()
    assert rejected == {"celery-jobs": REJECTED, "celery-beat": REJECTED}


def test_worker_that_gives_up_its_broker_is_reported(app: Celery, rejected: Counter[str]) -> None:
    """Celery ends its worker thread without an error."""
    ended: list[str] = []
    notified = threading.Event()

    def end(part: str) -> None:
        ended.append(part)
        notified.set()

    app.conf.update({name: program.conf[name] for name in RETRIES} | {"broker_connection_max_retries": 1})
    threads = JobThreads(app, (JOBS,), on_end=end)
    threads.start()
    try:
        assert notified.wait(OUTAGE_S)
    finally:
        threads.stop()
        stop_requested.clear()
    assert ended == ["jobs"]


def test_wake_ups_in_the_queues_are_counted(app: Celery) -> None:
    waiting = WaitingWakeUps(app)
    assert waiting() == 0
    for _ in range(3):
        app.send_task("wake")
    assert waiting() == 3
    app.conf.broker_url = "redis://127.0.0.1:1/"
    assert WaitingWakeUps(app)() == 0
