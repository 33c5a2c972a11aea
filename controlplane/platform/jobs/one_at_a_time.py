"""Decorator for jobs that run at most once at a time in each process."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable


def one_at_a_time(job: Callable[[], None]) -> Callable[[], None]:
    """Return the job with a guard: a second wake-up returns immediately and occupies no thread."""
    running = threading.Lock()

    @functools.wraps(job)
    def run() -> None:
        if running.acquire(blocking=False):
            try:
                job()
            finally:
                running.release()

    return run
