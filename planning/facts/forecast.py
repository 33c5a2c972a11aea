"""A pool's demand in the near future: by trend, and by the same time of past seasons."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from statistics import fmean

import msgspec

from planning.facts.fleet_facts import DemandPoint, known

MAX_GROWTH = 2.0
"""A forecast is at most this multiple of present demand: no trend lasts for ever."""
ENOUGH = 0.25
"""Share of the recent time that its points must span."""
_SURE = 2.0
"""Standard errors from which a slope is trusted."""
_AROUND_S = 600.0
"""Half width of "the same time" in another season; never more than a twentieth of the season."""


class Forecast(msgspec.Struct, frozen=True):
    """Work in engines: engine seconds of demand per second."""

    now: float
    ahead: float
    """Peak expected within the time ahead."""
    basis: str
    """level, trend or season: the source of `ahead`."""


def expected_demand(
    history: Sequence[DemandPoint], now_s: float, *, ahead_s: float, recent_s: float, season_s: float
) -> Forecast | None:
    """Return the forecast for `ahead_s` from now; None where the known points of the last `recent_s` seconds span too
    little of them.

    The level is the mean of the last `recent_s`; a trend is trusted where the slope over that time is twice its
    standard error; a season where there are points one season ago: its past growth applies to the present level.
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
    """Return slope per second and present value of the straight line through the points; slope 0 if uncertain."""
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
    """Return `level` times the growth that followed this moment one season ago; None without points."""
    around_s = min(_AROUND_S, season_s / 20)
    then_s = now_s - season_s
    before = [engines for at_s, engines in points if then_s - max(recent_s, around_s) <= at_s <= then_s]
    after = [engines for at_s, engines in points if then_s < at_s <= then_s + max(ahead_s, around_s)]
    if not before or not after or fmean(before) <= 0:
        return None
    return level * fmean(after) / fmean(before)
