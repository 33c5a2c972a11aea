"""Decorator for jobs that need one run at a time in each process."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable


def one_at_a_time(job: Callable[[], None]) -> Callable[[], None]:
    """Return the job with second wake-ups returning at once, so that they occupy no thread."""
    running = threading.Lock()

    @functools.wraps(job)
    def run() -> None:
        if running.acquire(blocking=False):
            try:
                job()
            finally:
                running.release()

    return run
