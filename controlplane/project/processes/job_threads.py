"""Runs Celery's worker and beat as threads of a process: both in the jobs process, one or both in a worker."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Any

import redis
from celery import Celery
from celery.beat import Scheduler
from celery.platforms import EX_OK
from celery.signals import task_prerun
from celery.worker import WorkController, state
from django.db import DEFAULT_DB_ALIAS, connections
from kombu.exceptions import OperationalError
from typing_extensions import override

from controlplane.platform.bus import fleet_keyring, get_bus, server_of_broker
from controlplane.platform.jobs.cooperative_stop import stop_requested
from controlplane.platform.jobs.wake import job_queues
from controlplane.platform.snapshot_change import TOPIC as SNAPSHOT
from controlplane.project.celery import app as program
from controlplane.project.job_needs import IDLE_S, JobNeeds
from controlplane.request_log.job import keep, request_intake
from controlplane.secret_rotation.own_secrets import answer_questions
from gateway.bus.bus_metrics import WAKE_UPS
from gateway.contracts.unserved_requests import WAKE_JOBS as WAKE
from gateway.server.process.shutdown import ProcessEnd

MAX_WAITING = 32
"""Number of wake-ups that may wait for a worker, somewhat more than there are jobs."""
_BEHIND_S = 0.2
"""Time until the schedule checks again whether a worker has caught up."""
MAX_ASKED = 256
"""Maximum number of wake-up requests between two ticks. Beyond it, the oldest requests wait for their schedule."""


class MonotonicScheduler(Scheduler):
    """Wakes each entry at a fixed interval in seconds if it is needed. Crontab schedules are not supported.

    Celery's default scheduler uses wall-clock time, so it stops for an hour if the clock is set back by an hour.
    Mutable state: the due time of each entry, when it was last woken, and the requested tasks.
    """

    clock: Callable[[], float] = staticmethod(time.monotonic)
    needs: Callable[[str], bool] = staticmethod(lambda _task: True)
    """Whether a task has work. A task that is not needed is woken every IDLE_S, and once at the start."""
    waiting: Callable[[], int] = staticmethod(lambda: 0)
    """Number of wake-ups that no worker has taken yet."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._due_s: dict[str, float] = {}
        self._woken_s: dict[str, float] = {}
        self._asked: deque[str] = deque(maxlen=MAX_ASKED)
        super().__init__(*args, **kwargs)

    @override
    def install_default_entries(self, data: dict[str, Any]) -> None:
        """Add no entries. Results are not stored, so no cleanup is needed."""

    def ask(self, jobs: Iterable[str]) -> None:
        """Wake these jobs at the next tick, whether due or not. Callable from any thread."""
        self._asked.extend(f"controlplane.{job}" for job in jobs)

    @override
    def tick(self, *_args: Any, **_kwargs: Any) -> float:
        """Wake due entries, and return the seconds until the next entry is due."""
        # As many as there are now: other threads may add some meanwhile.
        asked = {self._asked.popleft() for _ in range(len(self._asked))}
        if self.waiting() >= MAX_WAITING:
            # A worker that is behind would only get further behind: all that wait say the same again.
            self._asked.extend(asked)
            return _BEHIND_S
        for name, entry in list(self.schedule.items()):
            now = self.clock()
            if entry.task not in asked:
                if self._due_s.get(name, now) > now:
                    continue
                self._due_s[name] = now + entry.schedule.seconds
                if now - self._woken_s.get(name, -IDLE_S) < IDLE_S and not self.needs(entry.task):
                    continue
            self._due_s[name] = now + entry.schedule.seconds
            self._woken_s[name] = now
            self.apply_entry(self.reserve(entry), producer=self.producer)
        return max(0.0, min([*self._due_s.values(), self.clock() + self.max_interval]) - self.clock())


logger = logging.getLogger(__name__)

QUEUES = ("jobs", "probe")
_THREADS = 7
STOP_S = 1.2
"""Time limit for jobs at shutdown. Jobs that take longer end with the process, and their leases expire."""
_POLL_S = 0.2
_LONGEST_SLEEP_S = 1.0
_CONNECTION_S = 600
_REPORT_EVERY_S = 1.0
"""Minimum interval between messages that report wake-ups."""
JOBS, BEAT = "jobs", "beat"


def run_jobs(role: str, parts: Collection[str], end: ProcessEnd, on_start: Callable[[], None] = lambda: None) -> None:
    """Run these parts until the process is asked to end; ask it if a part ends unexpectedly."""
    if JOBS in parts:
        # Subscribes now; the job that stores what is received may start later.
        request_intake()
    answer_questions(role, [fleet_keyring()])
    threads = JobThreads(
        program, parts, lambda part: end.ask(f"the thread of {part} stopped unexpectedly", drains=False, status=1)
    )
    # Each thread keeps its connection. By default, each job would open one and set it up, which takes most of a short
    # job's time.
    connections.settings[DEFAULT_DB_ALIAS]["CONN_MAX_AGE"] = _CONNECTION_S
    threads.start()
    on_start()
    while not end.asked:
        time.sleep(_POLL_S)
    threads.stop()
    if JOBS in parts:
        try:
            keep(request_intake())
        except Exception:
            # The edge of the process: it ends in any case.
            logger.exception("what came last could not be stored")


class JobThreads:
    """One worker for all queues (JOBS), and one schedule that wakes jobs (BEAT), also on requests from the bus.

    `on_end` is called with the name of a part that ended unexpectedly, in that part's thread. Mutable state: the
    threads, and the time of the last reported wake-up.
    """

    def __init__(
        self, app: Celery, parts: Collection[str] = (JOBS, BEAT), on_end: Callable[[str], None] = lambda _: None
    ) -> None:
        self._app = app
        self._on_end = on_end
        self._stopping = False
        self._reported_s = float("-inf")
        self._hurry = threading.Event()
        """Set when the schedule must act before its next due time, or must end."""
        self._wake_up = app.task(_do_nothing, name="controlplane.wake_up", shared=False, ignore_result=True)
        run = {JOBS: self._run_worker, BEAT: self._run_beat}
        self._threads = {
            part: threading.Thread(target=self._watched, args=(part, run[part]), name=f"celery-{part}", daemon=True)
            for part in parts
        }

    def start(self) -> None:
        """Start the threads and return immediately."""
        stop_requested.clear()
        state.should_stop = None
        task_prerun.connect(self._report_woken, weak=False)
        for thread in self._threads.values():
            thread.start()

    def stop(self) -> None:
        """Request running jobs to end, stop the threads, and wait for them, STOP_S at most."""
        self._stopping = True
        task_prerun.disconnect(self._report_woken)
        # Long jobs check it and end by themselves.
        stop_requested.set()
        state.should_stop = EX_OK
        self._hurry.set()
        if JOBS in self._threads:
            # In a thread: an unreachable broker would delay the shutdown.
            threading.Thread(target=self._wake_worker, name="wake worker", daemon=True).start()
        until_s = time.monotonic() + STOP_S
        for thread in self._threads.values():
            if thread.is_alive():
                thread.join(max(0.0, until_s - time.monotonic()))

    def _wake_worker(self) -> None:
        # The worker checks the flag after a message or two seconds, and then waits once more.
        with contextlib.suppress(OperationalError):
            for _ in range(2):
                self._wake_up.delay()

    def _watched(self, part: str, run: Callable[[], None]) -> None:
        try:
            run()
        except SystemExit:
            # Celery raises it to leave the thread.
            return
        except Exception:
            # The edge of the thread: whatever ended it is logged, and `on_end` reports it to the process below.
            logger.exception("the thread of %s failed", part)
        finally:
            if not self._stopping:
                self._on_end(part)

    def _report_woken(self, **_kwargs: object) -> None:
        now = time.monotonic()
        if now - self._reported_s >= _REPORT_EVERY_S:
            self._reported_s = now
            get_bus().append(WAKE_UPS, b"")

    def _run_worker(self) -> None:
        # The pool's threads, which set no current application, find jobs in the default one.
        self._app.set_default()
        worker = WorkController(
            app=self._app,
            hostname="embedded@localhost",
            pool_cls="threads",
            concurrency=_THREADS,
            queues=[queue for name in QUEUES for queue in job_queues(name)],
            loglevel="WARNING",
            without_heartbeat=True,
            without_gossip=True,
            without_mingle=True,
            quiet=True,
        )
        worker.start()

    def _run_beat(self) -> None:
        self._app.set_current()
        schedule = MonotonicScheduler(self._app, max_interval=_LONGEST_SLEEP_S)
        schedule.needs = needs = JobNeeds()
        schedule.waiting = WaitingWakeUps(self._app)

        def receive(topic: str, value: bytes) -> None:
            if topic == WAKE:
                schedule.ask(value.decode().split(","))
            # A change that is woken for, or a new snapshot, may give other jobs work, too.
            needs.forget()
            self._hurry.set()

        unsubscribe = [get_bus().subscribe(topic, receive) for topic in (WAKE, SNAPSHOT)]
        try:
            while not self._stopping:
                self._hurry.wait(schedule.tick())
                self._hurry.clear()
        finally:
            for end in unsubscribe:
                end()


class WaitingWakeUps:
    """Counts the wake-ups in the queues of an application; 0 without an answer, which the schedule reports itself.

    Mutable: the connections to the broker's server.
    """

    def __init__(self, app: Celery) -> None:
        prefix = app.conf.broker_transport_options.get("global_keyprefix", "")
        self._queues = [prefix + job_queues(name)[0] for name in QUEUES]
        url = server_of_broker(app.conf.broker_url or "")
        self._server = url and redis.Redis.from_url(url, socket_timeout=_POLL_S, socket_connect_timeout=_POLL_S)

    def __call__(self) -> int:
        """Return their number."""
        try:
            return sum(int(self._server.llen(queue)) for queue in self._queues) if self._server else 0
        except redis.RedisError:
            return 0


def _do_nothing() -> None:
    """Do nothing. The message alone wakes the worker."""
