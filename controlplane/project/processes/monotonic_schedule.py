"""Celery's beat on the monotonic clock: a change of the machine's clock does not affect wake-ups."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from celery.beat import Scheduler
from typing_extensions import override

MAX_ASKED = 256
"""Wake-ups between two ticks; the oldest beyond it wait for their schedule."""


class MonotonicScheduler(Scheduler):
    """Wakes each entry every so many seconds; crontab schedules have no place here.

    Celery's own scheduler compares wall times, and after the clock went back an hour it wakes nothing for that hour.
    Mutable state: when each entry is due, and the tasks that were asked for.
    """

    clock: Callable[[], float] = staticmethod(time.monotonic)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._due_s: dict[str, float] = {}
        self._asked: deque[str] = deque(maxlen=MAX_ASKED)
        super().__init__(*args, **kwargs)

    @override
    def install_default_entries(self, data: dict[str, Any]) -> None:
        """Add none: results are not kept, so that there are none to clean up at a time of day."""

    def ask(self, jobs: Iterable[str]) -> None:
        """Have the next tick wake these jobs, due or not; from any thread."""
        self._asked.extend(f"controlplane.{job}" for job in jobs)

    @override
    def tick(self, *_args: Any, **_kwargs: Any) -> float:
        """Wake what is due and return how many seconds nothing else will be."""
        asked = {self._asked.popleft() for _ in range(len(self._asked))}
        for name, entry in list(self.schedule.items()):
            now = self.clock()
            if self._due_s.setdefault(name, now) <= now or entry.task in asked:
                self._due_s[name] = now + entry.schedule.seconds
                self.apply_entry(self.reserve(entry), producer=self.producer)
        return max(0.0, min([*self._due_s.values(), self.clock() + self.max_interval]) - self.clock())
