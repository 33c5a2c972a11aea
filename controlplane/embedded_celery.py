"""Celery's worker and beat as threads of this process: both without a broker, either or both with one."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection

from celery import Celery
from celery.beat import Scheduler, Service
from celery.platforms import EX_OK
from celery.worker import WorkController, state

from controlplane.jobs.cooperative_stop import stop_requested

logger = logging.getLogger(__name__)

QUEUES = ("jobs", "probe")
_THREADS = 7
STOP_S = 3.0
JOBS, BEAT = "jobs", "beat"


class EmbeddedCelery:
    """One worker for all queues (JOBS), one schedule that wakes jobs (BEAT). Mutable state: their threads."""

    def __init__(self, app: Celery, parts: Collection[str] = (JOBS, BEAT)) -> None:
        self._app = app
        self._beat = Service(app, max_interval=1, scheduler_cls=Scheduler)
        self._wake_up = app.task(_do_nothing, name="controlplane.wake_up", shared=False, ignore_result=True)
        run = {JOBS: self._run_worker, BEAT: self._run_beat}
        self._threads = {part: threading.Thread(target=run[part], name=f"celery-{part}", daemon=True) for part in parts}

    def start(self) -> None:
        """Start the threads and return at once."""
        stop_requested.clear()
        state.should_stop = None
        for thread in self._threads.values():
            thread.start()

    def stop(self) -> None:
        """Ask running jobs to end, stop the threads and wait for them, STOP_S each at most."""
        stop_requested.set()
        state.should_stop = EX_OK
        self._beat.stop()
        # The worker looks at the flag after a message or two seconds, and then waits once more.
        for _ in range(2 if JOBS in self._threads else 0):
            self._wake_up.delay()
        for thread in self._threads.values():
            if thread.is_alive():
                thread.join(STOP_S)

    def _run_worker(self) -> None:
        try:
            self._work()
        except Exception:
            # The edge of a thread: nobody else would tell that jobs stand still.
            logger.exception("the embedded worker ended; no jobs run until the program is started again")

    def _work(self) -> None:
        # The pool's threads, which set no current application, look jobs up in the default one.
        self._app.set_default()
        worker = WorkController(
            app=self._app,
            hostname="embedded@localhost",
            pool_cls="threads",
            concurrency=_THREADS,
            queues=QUEUES,
            loglevel="WARNING",
            without_heartbeat=True,
            without_gossip=True,
            without_mingle=True,
            quiet=True,
        )
        worker.start()

    def _run_beat(self) -> None:
        self._app.set_current()
        self._beat.start(embedded_process=False)


def _do_nothing() -> None:
    """Be a job whose message alone matters."""
