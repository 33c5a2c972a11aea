"""Detects hot engines: those with far more in-flight work than the other engines of their pool, for some time."""

from __future__ import annotations

import msgspec

ENTER_RATIO = 2.0
"""Multiple of the pool's median in-flight seconds."""
# Below ENTER_RATIO, so that a value near the limit does not switch the state back and forth.
LEAVE_RATIO = 1.5
ENTER_SLO_SHARE = 0.5
"""Share of the pool's TTFT SLO that the in-flight seconds must also exceed."""
LEAVE_SLO_SHARE = 0.4
HOLD_S = 2.0
"""Seconds for which a condition must hold before the state changes."""


class _Mark(msgspec.Struct):
    hot: bool
    turning_since: float | None


class HotspotDetector:
    """Hot or not per engine, with hysteresis. Mutable: one mark per engine."""

    def __init__(self) -> None:
        self._marks: dict[str, _Mark] = {}

    def update(self, engine_id: str, in_flight_s: float, median_s: float, ttft_slo_s: float, now: float) -> bool:
        """Add one reading; return whether the engine is hot."""
        mark = self._marks.setdefault(engine_id, _Mark(False, None))
        ratio, share = (LEAVE_RATIO, LEAVE_SLO_SHARE) if mark.hot else (ENTER_RATIO, ENTER_SLO_SHARE)
        is_over = in_flight_s > ratio * median_s and in_flight_s > share * ttft_slo_s
        if is_over == mark.hot:
            mark.turning_since = None
        elif mark.turning_since is None:
            mark.turning_since = now
        elif now - mark.turning_since >= HOLD_S:
            mark.hot = is_over
            mark.turning_since = None
        return mark.hot

    def forget(self, engine_id: str) -> None:
        """Remove an engine that left or accepts no work."""
        self._marks.pop(engine_id, None)
