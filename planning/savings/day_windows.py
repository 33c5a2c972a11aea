"""Windows of a day's traffic that are replayed, and how much of the day each represents."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import msgspec

SLICES = 8
LEAST_REQUESTS = 60
"""Minimum requests of a slice; the late share of fewer says little."""
LEAST_WINDOWS = 4
"""Minimum replayed windows of a day; the deviation between fewer gives no range."""
MOST_COUNTED = 1500
MOST_WARMUP = 1500
"""Requests before a window that fill caches and queues, and are not counted."""


class DayWindow(msgspec.Struct, frozen=True, kw_only=True):
    """Rows `first` to `last` (exclusive) of a day, the first `warmup` of which are not counted."""

    first: int
    last: int
    warmup: int
    requests: int
    """Requests of the slice that the window represents."""
    hours: float
    """Duration of that slice."""

    @property
    def counted(self) -> int:
        """Number of counted requests."""
        return self.last - self.first - self.warmup


def day_windows(times_s: Sequence[float]) -> tuple[DayWindow, ...]:
    """Return the middle of each slice of equal duration with enough requests, given arrival times in ascending order.

    Neighbors are far apart in the result, so that its first half also covers the day.
    """
    if not times_s or times_s[-1] <= times_s[0]:
        return ()
    length_s = (times_s[-1] - times_s[0]) / SLICES
    made = []
    # Bits reversed: 0, 4, 2, 6, 1, 5, 3, 7.
    for number in sorted(range(SLICES), key=lambda item: f"{item:03b}"[::-1]):
        begin_s = times_s[0] + number * length_s
        begin = bisect_left(times_s, begin_s)
        end = bisect_left(times_s, begin_s + length_s) if number < SLICES - 1 else len(times_s)
        if end - begin < LEAST_REQUESTS:
            continue
        counted = min(end - begin, MOST_COUNTED)
        # The first slice has nothing before it to warm up with.
        first_counted = begin + (end - begin - counted) // 2
        if first_counted == 0:
            first_counted, counted = counted // 3, counted - counted // 3
        warmup = min(first_counted, MOST_WARMUP)
        made.append(
            DayWindow(
                first=first_counted - warmup,
                last=first_counted + counted,
                warmup=warmup,
                requests=end - begin,
                hours=length_s / 3600,
            )
        )
    return tuple(made)
