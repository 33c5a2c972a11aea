"""Celery's beat on the monotonic clock: wake-ups go on as they were when somebody sets the machine's clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from celery.beat import Scheduler
from typing_extensions import override


class MonotonicScheduler(Scheduler):
    """Wakes each entry every so many seconds; crontab schedules have no place here.

    Celery's own scheduler compares wall times, and after the clock went back an hour it wakes nothing for that hour.
    Mutable state: when each entry is due.
    """

    clock: Callable[[], float] = staticmethod(time.monotonic)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._due_s: dict[str, float] = {}
        super().__init__(*args, **kwargs)

    @override
    def install_default_entries(self, data: dict[str, Any]) -> None:
        """Add none: results are not kept, so that there are none to clean up at a time of day."""

    @override
    def tick(self, *_args: Any, **_kwargs: Any) -> float:
        """Wake what is due and return how many seconds nothing else will be."""
        for name, entry in list(self.schedule.items()):
            now = self.clock()
            if self._due_s.setdefault(name, now) <= now:
                self._due_s[name] = now + entry.schedule.seconds
                self.apply_entry(self.reserve(entry), producer=self.producer)
        return max(0.0, min([*self._due_s.values(), self.clock() + self.max_interval]) - self.clock())
