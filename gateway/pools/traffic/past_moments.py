"""Times of the latest events, so that their age at a given time can be computed later."""

from __future__ import annotations

from array import array
from bisect import bisect_right


class PastMoments:
    """Increasing monotonic seconds: at most twice `limit`, and each at least `apart_s` after the previous one.

    One thread records; any thread can read.
    """

    def __init__(self, limit: int = 1024, apart_s: float = 0.05) -> None:
        self._moments = array("d")
        self._limit = limit
        self._apart_s = apart_s

    def note(self, at_s: float) -> None:
        """Record one time. If there are too many, the older half is dropped."""
        moments = self._moments
        if not moments or at_s - moments[-1] >= self._apart_s:
            moments.append(at_s)
            if len(moments) >= 2 * self._limit:
                # A new array: readers in other threads go on with the old one, and need no copy.
                self._moments = moments[self._limit :]

    def age_s(self, at_s: float) -> float | None:
        """Return the age at `at_s` of the newest time before it, None if all times are later."""
        moments = self._moments
        index = bisect_right(moments, at_s)
        return at_s - moments[index - 1] if index else None

    def any_between(self, begin_s: float, end_s: float) -> bool:
        """Return whether any time is in [begin_s, end_s]."""
        moments = self._moments
        index = bisect_right(moments, end_s)
        return index > 0 and moments[index - 1] >= begin_s
