"""Load of a pool over its last windows: attainment, demand, queue, and queue growth."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from planning.facts.fleet_facts import PoolWindow, known


class PoolLoad(msgspec.Struct, frozen=True, kw_only=True):
    """A pool over its last seconds. None means unknown."""

    attainment: float | None
    requests: int
    demand: float | None
    """Engine seconds of demand per second."""
    latest_demand: float | None
    """Demand over the last third of the time: the level reached by a recent increase."""
    queued_s: float
    """Engine seconds of work waiting at the end."""
    queue_growth: float
    """Queue growth in engine seconds per second."""


ENOUGH = 0.5
"""Minimum share of the time that windows must cover for a known demand."""


def load_of(windows: Sequence[PoolWindow], now_s: float, span_s: float, min_requests: int) -> PoolLoad:
    """Return the load over the last `span_s` seconds. Windows with impossible figures are ignored."""
    recent = [window for window in windows if window.from_s + window.span_s > now_s - span_s and _is_sound(window)]
    requests = sum(item.requests for item in recent)
    seconds = sum(item.span_s for item in recent)
    first = recent[0] if recent else None
    last = recent[-1] if recent else None
    growth = 0.0
    if first is not None and last is not None and last.from_s > first.from_s:
        # From the end of the first window to the end of the last.
        growth = (last.queued_s - first.queued_s) / (last.from_s + last.span_s - first.from_s - first.span_s)
    return PoolLoad(
        attainment=sum(item.on_time for item in recent) / requests if requests >= min_requests else None,
        requests=requests,
        demand=_demand(recent) if seconds >= ENOUGH * span_s else None,
        latest_demand=_demand([item for item in recent if item.from_s + item.span_s > now_s - span_s / 3]),
        queued_s=last.queued_s if last is not None else 0.0,
        queue_growth=growth,
    )


def _demand(windows: Sequence[PoolWindow]) -> float | None:
    seconds = sum(window.span_s for window in windows)
    return sum(window.work_s for window in windows) / seconds if seconds else None


def _is_sound(window: PoolWindow) -> bool:
    figures = (window.span_s, window.requests, window.on_time, window.work_s, window.queued_s)
    return (
        all(known(figure) is not None for figure in figures) and window.span_s > 0 and window.on_time <= window.requests
    )
