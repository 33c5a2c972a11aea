"""LBGR's estimate of an engine's queue: work sent to it, decaying over time (LBGR §4.2, eq. 6, Algorithm 2)."""

from __future__ import annotations


class DecayingLoad:
    """Costs that decay by the factor `decay` in each interval, computed on demand.

    With `keeps_pending`, the load never falls below the sum of added and unreleased costs, so a request that is still
    queued is never forgotten.

    Mutable state: `_load` (valid at `_at_s`), `_at_s`, and `_pending`.
    """

    def __init__(self, decay: float, interval_s: float, *, keeps_pending: bool = False) -> None:
        self._decay = decay
        self._interval_s = interval_s
        self._keeps_pending = keeps_pending
        self._load = 0.0
        self._pending = 0.0
        self._at_s = 0.0

    def at(self, now: float) -> float:
        """Return the load at a time. Times before the last change count as that of the change."""
        load = self._load * self._factor(now - self._at_s)
        return max(load, self._pending) if self._keeps_pending else load

    def add(self, cost: float, now: float) -> None:
        """Add a cost."""
        self._move(now)
        self._load += cost
        self._pending += cost

    def release(self, cost: float, added_s: float, now: float) -> None:
        """Subtract the remainder of a cost that was added at `added_s`."""
        self._move(now)
        # Rounding must not leave less than nothing.
        self._load = max(self._load - cost * self._factor(now - added_s), 0.0)
        self._pending = max(self._pending - cost, 0.0)

    def _move(self, now: float) -> None:
        self._load *= self._factor(now - self._at_s)
        self._at_s = max(self._at_s, now)

    def _factor(self, passed_s: float) -> float:
        return float(self._decay ** (max(passed_s, 0.0) / self._interval_s))
