"""Track since when each queued request has been overtaken by later ones."""

from __future__ import annotations

from bisect import bisect_right


class Starvation:
    """Dispatches by the arrival number of their queued requests.

    Only a dispatch of a later arrival than all earlier dispatches is recorded: the first recorded number above a queued
    request's own was the first to overtake it. Mutable state: `_numbers` and `_moments`, both increasing.
    """

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._moments: list[float] = []

    def __len__(self) -> int:
        return len(self._numbers)

    def dispatched(self, number: int, now: float, oldest: int) -> None:
        """Record a dispatch. Queued requests with numbers below `oldest` no longer wait."""
        if not self._numbers or number > self._numbers[-1]:
            self._numbers.append(number)
            self._moments.append(now)
        gone = bisect_right(self._numbers, oldest)
        # In bulk, because each deletion at the front moves all the rest.
        if gone > 64:
            del self._numbers[:gone], self._moments[:gone]

    def since(self, number: int) -> float:
        """Return when a queued request was first overtaken, inf if never."""
        at = bisect_right(self._numbers, number)
        return self._moments[at] if at < len(self._moments) else float("inf")
