"""A pool's demand in the near future, by trend and by the same time in past seasons."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from statistics import fmean

import msgspec

from planning.facts.fleet_facts import DemandPoint, known

MAX_GROWTH = 2.0
"""Maximum forecast as a multiple of current demand, because no trend lasts for ever."""
ENOUGH = 0.25
"""Minimum share of the recent time that the points must span."""
_SURE = 2.0
"""Minimum slope in standard errors for a trend to count."""
_AROUND_S = 600.0
"""Half width of "the same time" in another season, limited to a twentieth of the season."""


class Forecast(msgspec.Struct, frozen=True):
    """Demand in engines: engine seconds of work per second."""

    now: float
    ahead: float
    """Peak expected within the forecast time."""
    basis: str
    """Source of `ahead`: level, trend, or season."""


def expected_demand(
    history: Sequence[DemandPoint], now_s: float, *, ahead_s: float, recent_s: float, season_s: float
) -> Forecast | None:
    """Return the forecast for `ahead_s` from now. None if the recent known points span too little time.

    The level is the mean of the last `recent_s` seconds. A trend counts if the slope over that time is at least twice
    its standard error. A season counts if there are points one season ago: its past growth is applied to the current
    level.
    """
    points = sorted(
        ((point.at_s, engines) for point in history if (engines := known(point.engines)) is not None),
    )
    recent = [(at_s, engines) for at_s, engines in points if now_s - recent_s <= at_s <= now_s]
    if not recent or recent[-1][0] - recent[0][0] < ENOUGH * recent_s:
        return None
    level = fmean(engines for _, engines in recent)
    forecasts = [(level, "level")]
    slope, at_end = _line(recent, now_s)
    # A falling trend promises nothing.
    if slope > 0:
        forecasts.append((at_end + slope * ahead_s, "trend"))
    season = _seasonal(points, level, now_s, ahead_s, season_s, recent_s)
    if season is not None:
        forecasts.append((season, "season"))
    most, basis = max(forecasts, key=lambda forecast: forecast[0])
    # Twice nothing would be nothing: a pool without demand may begin at any level.
    return Forecast(level, min(most, MAX_GROWTH * level) if level else most, basis)


def _line(points: Sequence[tuple[float, float]], now_s: float) -> tuple[float, float]:
    """Return slope per second and current value of the straight line through the points.

    The slope is 0 if uncertain.
    """
    count = len(points)
    mean_at = fmean(at_s for at_s, _ in points)
    mean = fmean(engines for _, engines in points)
    spread = sum((at_s - mean_at) ** 2 for at_s, _ in points)
    if count < 4 or not spread:
        return 0.0, mean
    slope = sum((at_s - mean_at) * (engines - mean) for at_s, engines in points) / spread
    at_end = mean + slope * (now_s - mean_at)
    left = sum((engines - mean - slope * (at_s - mean_at)) ** 2 for at_s, engines in points)
    # Standard error of the slope of a least-squares line, with n − 2 degrees of freedom.
    error = sqrt(left / (count - 2) / spread)
    return (slope, at_end) if abs(slope) > _SURE * error else (0.0, mean)


def _seasonal(
    points: Sequence[tuple[float, float]], level: float, now_s: float, ahead_s: float, season_s: float, recent_s: float
) -> float | None:
    """Return `level` times the growth after this time one season ago, None without points."""
    around_s = min(_AROUND_S, season_s / 20)
    then_s = now_s - season_s
    before = [engines for at_s, engines in points if then_s - max(recent_s, around_s) <= at_s <= then_s]
    after = [engines for at_s, engines in points if then_s < at_s <= then_s + max(ahead_s, around_s)]
    if not before or not after or fmean(before) <= 0:
        return None
    return level * fmean(after) / fmean(before)
