"""The last times at which something was received, so that its age at an earlier time can be computed later."""

from __future__ import annotations

from array import array
from bisect import bisect_right


class PastMoments:
    """Rising monotonic seconds, at most twice `limit`, none closer than `apart_s` to the one before.

    One thread notes, any may ask.
    """

    def __init__(self, limit: int = 1024, apart_s: float = 0.05) -> None:
        self._moments = array("d")
        self._limit = limit
        self._apart_s = apart_s

    def note(self, at_s: float) -> None:
        """Note one moment; the older half leaves where there are too many."""
        moments = self._moments
        if not moments or at_s - moments[-1] >= self._apart_s:
            moments.append(at_s)
            if len(moments) >= 2 * self._limit:
                # A new array: readers in other threads go on with the old one, and need no copy.
                self._moments = moments[self._limit :]

    def age_s(self, at_s: float) -> float | None:
        """Return the age of the newest at `at_s`; None where all are younger."""
        moments = self._moments
        index = bisect_right(moments, at_s)
        return at_s - moments[index - 1] if index else None

    def any_between(self, begin_s: float, end_s: float) -> bool:
        """Return whether any is in [begin_s, end_s]."""
        moments = self._moments
        index = bisect_right(moments, end_s)
        return index > 0 and moments[index - 1] >= begin_s
