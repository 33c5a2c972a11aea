"""Progress of draining engines: requests in flight, and the estimated time until they finish.

Pure: samples in, progress out. A draining engine accepts no new work, so its in-flight requests only decrease. Their
decrease in the last half minute gives the estimate.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

WINDOW_S = 30.0
STEP_S = 1.0
"""Interval between stored points. Samples arrive twice a second."""
DRAINING = ("draining", "maintenance")


@dataclass(frozen=True, slots=True)
class EngineLeft:
    """One sample's figures for one engine that accepts no new work."""

    engine_id: str
    state: str
    since: float
    """Unix seconds at which the engine stopped accepting work."""
    left: int
    """Requests that run on the engine or wait for it."""


@dataclass(frozen=True, slots=True)
class DrainProgress:
    """Drain progress of one engine."""

    left: int
    longest_s: float
    """Lower bound of the running time of the longest remaining request; 0 without remaining requests."""
    about_s: float | None
    """Estimated time until all requests finish; None if none has finished recently."""


class DrainMeter:
    """Tracks engines while they drain. Mutable state: per engine, the points (unix s, requests) of the window."""

    def __init__(self) -> None:
        self._points: dict[str, deque[tuple[float, int]]] = {}
        self._since: dict[str, float] = {}

    def take(self, at: float, engines: Iterable[EngineLeft]) -> None:
        """Add one sample at unix second `at`. Engines that it does not contain are removed."""
        known = set()
        for engine in engines:
            if engine.state not in DRAINING:
                continue
            known.add(engine.engine_id)
            points = self._points.setdefault(engine.engine_id, deque())
            self._since.setdefault(engine.engine_id, engine.since)
            if not points or at - points[-1][0] >= STEP_S or not engine.left:
                points.append((at, engine.left))
            # One point older than the window stays, so that the window is spanned.
            while len(points) > 1 and points[1][0] <= at - WINDOW_S:
                points.popleft()
        for gone in self._points.keys() - known:
            del self._points[gone]
            del self._since[gone]

    def progress(self, engine_id: str) -> DrainProgress | None:
        """Return the engine's progress; None if it does not drain."""
        points = self._points.get(engine_id)
        if not points:
            return None
        at, left = points[-1]
        if not left:
            return DrainProgress(0, 0.0, 0.0)
        return DrainProgress(left, max(0.0, at - self._since[engine_id]), _about(points))


def _about(points: deque[tuple[float, int]]) -> float | None:
    (start, before), (at, left) = points[0], points[-1]
    finished = before - left
    return left * (at - start) / finished if finished > 0 and at > start else None
