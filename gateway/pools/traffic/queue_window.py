"""Events in one pool's queue in the last seconds: dispatches with their waits, migrations, rejections."""

from __future__ import annotations

import math
from collections import deque

import msgspec

from routing.ledger.router_counts import CountsSeen

MAX_WAITS = 4096
"""Limit of waits kept between two readings. Beyond it, only the newest dispatches count."""


class QueueSummary(msgspec.Struct, frozen=True, gc=False):
    """A summary of the window: events per second, waits in seconds (None: no dispatch)."""

    dispatched_at_once_per_s: float
    dispatched_waited_per_s: float
    migrations_per_s: float
    overtaken_per_s: float
    rejections_per_s: dict[str, float]
    """Rejections by code. Codes without a rejection are omitted."""
    wait_mean_s: float | None
    wait_p90_s: float | None


class _Reading(msgspec.Struct, frozen=True):
    at_s: float
    counts: CountsSeen
    waits: tuple[float, ...]
    """Waits of the dispatches since the previous reading."""


class QueueWindow:
    """Readings of a router's counts over `window_s` seconds, and the waits of the dispatches between them.

    A wait is the complete time at the gateway; an immediate dispatch waited 0. Mutable: `_readings` and the waits since
    the newest one.
    """

    def __init__(self, window_s: float = 15.0) -> None:
        self.window_s = window_s
        self._readings: deque[_Reading] = deque()
        self._waits: deque[float] = deque(maxlen=MAX_WAITS)

    def dispatched(self, waited_s: float) -> None:
        """Record a dispatch."""
        self._waits.append(waited_s)

    def evaluate(self, counts: CountsSeen, now: float) -> QueueSummary | None:
        """Take a reading at monotonic second `now`; return the window's events, None at the first reading."""
        readings = self._readings
        readings.append(_Reading(now, counts, tuple(self._waits)))
        self._waits.clear()
        # The oldest reading is where counting starts: one at the window's edge or just before it.
        while len(readings) > 1 and readings[1].at_s <= now - self.window_s:
            readings.popleft()
        if len(readings) == 1:
            return None
        return _summary(
            readings[0], readings[-1], sorted(wait for reading in list(readings)[1:] for wait in reading.waits)
        )


def _summary(before: _Reading, after: _Reading, waits: list[float]) -> QueueSummary:
    old, new = before.counts, after.counts
    per_s = 1.0 / max(1.0, after.at_s - before.at_s)
    rejected = {code: count - old.rejected.get(code, 0) for code, count in sorted(new.rejected.items())}
    return QueueSummary(
        (new.dispatched_at_once - old.dispatched_at_once) * per_s,
        (new.dispatched_after_waiting - old.dispatched_after_waiting) * per_s,
        (new.migrated - old.migrated) * per_s,
        (new.overtaken - old.overtaken) * per_s,
        {code: count * per_s for code, count in rejected.items() if count},
        sum(waits) / len(waits) if waits else None,
        waits[math.ceil(0.9 * len(waits)) - 1] if waits else None,
    )
