"""Share of the last minute in which a node's disk was busy."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

WINDOW_S = 60.0
_MARK_S = 1.0


class DiskUse:
    """Busy time of a disk. Thread-safe. Mutable state: reads and writes in progress, and the busy seconds over time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._under_way, self._since, self._busy_s = 0, 0.0, 0.0
        self._marks: deque[tuple[float, float]] = deque([(clock(), 0.0)])

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Count the context's duration as busy. Overlaps count once."""
        with self._lock:
            self._under_way += 1
            if self._under_way == 1:
                self._since = self._clock()
        try:
            yield
        finally:
            with self._lock:
                self._under_way -= 1
                if not self._under_way:
                    self._busy_s += self._clock() - self._since

    def share(self) -> float:
        """Return the busy share of the last minute, 0..1. Call it every few seconds, to mark the minute's start."""
        with self._lock:
            now = self._clock()
            busy_s = self._busy_s + (now - self._since if self._under_way else 0.0)
            if now - self._marks[-1][0] >= _MARK_S:
                self._marks.append((now, busy_s))
            # One mark from before the minute stays, as its beginning.
            while len(self._marks) > 1 and self._marks[1][0] <= now - WINDOW_S:
                self._marks.popleft()
            at_s, before_s = self._marks[0]
            return min(1.0, (busy_s - before_s) / (now - at_s)) if now > at_s else 0.0
