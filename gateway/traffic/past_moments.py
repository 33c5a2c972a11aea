"""The last times at which something was received, so that its age at an earlier time can be computed later."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import TypeAlias

Moments: TypeAlias = "array[float]"
"""Rising monotonic seconds."""


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
                del moments[: self._limit]

    def copy(self) -> Moments:
        """Return the moments as they are, for who asks for many ages."""
        # Within one step of the interpreter, so the loop may go on noting meanwhile.
        return self._moments[:]

    def age_s(self, at_s: float) -> float | None:
        """Return how old the newest was at `at_s`; None where all are younger."""
        return age_of(self.copy(), at_s)

    def any_between(self, begin_s: float, end_s: float) -> bool:
        """Return whether one lies in [begin_s, end_s]."""
        if not self._moments:
            return False
        moments = self.copy()
        place = bisect_right(moments, end_s)
        return place > 0 and moments[place - 1] >= begin_s


def age_of(moments: Moments, at_s: float) -> float | None:
    """Return how old the newest of the moments was at `at_s`; None where all are younger."""
    place = bisect_right(moments, at_s)
    return at_s - moments[place - 1] if place else None
