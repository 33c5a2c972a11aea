"""A job of which one run at a time is enough in each process."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable


def one_at_a_time(job: Callable[[], None]) -> Callable[[], None]:
    """Return the job so that a second wake-up returns at once: it would only take a thread away from other jobs."""
    running = threading.Lock()

    @functools.wraps(job)
    def run() -> None:
        if running.acquire(blocking=False):
            try:
                job()
            finally:
                running.release()

    return run
