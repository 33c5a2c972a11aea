"""What share of requests was on time, and what is left of the error budget.

The last day is read from the stored history, in columns of two minutes; 30 days are read from the ledger of usage,
which counts each request once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from controlplane.history.bucket import POOL_FLOATS
from controlplane.history.rollups import COARSE_S
from controlplane.history.store import read_past
from controlplane.objectives.objective import Objective
from controlplane.usage.models.usage_rows import UsageDay
from controlplane.usage.summary import sums

WINDOW_DAYS = 30
_ON_TIME, _REQUESTS = POOL_FLOATS.index("on_time"), POOL_FLOATS.index("requests_per_s")
_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Attainment:
    """Shares of requests on time, 0..1; None: no requests, or not recorded."""

    hour: float | None
    six_hours: float | None
    day: float | None
    yesterday: float | None
    """The same hour a day before."""
    window: float | None
    """The last WINDOW_DAYS UTC days, with today."""
    budget_left: float | None
    """Share of the window's error budget; negative: overspent."""
    target: float

    def burn(self, share: float | None) -> float | None:
        """Return how many times as fast as allowed the budget was used; 1 uses it up exactly in the window."""
        return None if share is None else (1.0 - share) / (1.0 - self.target)


def attainment(objective: Objective, now: datetime) -> Attainment:
    """Return the attainment of the objective's pools."""
    pools = _covered(objective)
    last = int(now.timestamp() // COARSE_S) - 1
    first, named = last - round(25 * _HOUR_S / COARSE_S), [objective.pool] if objective.pool else None
    columns = read_past(COARSE_S, first, last, named)
    readings = [
        (float(column.index * COARSE_S), values[_ON_TIME], values[_REQUESTS])
        for column in columns.columns
        for pool, values in column.pools.items()
        if pools(pool)
    ]
    at, target = now.timestamp(), objective.target / 100
    ended = UsageDay.objects.filter(day__gt=now.date() - timedelta(days=WINDOW_DAYS)).exclude(pool="")
    total = sums(ended.filter(pool=objective.pool) if objective.pool else ended.exclude(pool__in=_others()))[0]
    missed = total["late"] + total["failed"] + total["rejected"]
    counted = total["requests"] - total["client_ended"] - total["unreported"]
    window = 1.0 - missed / counted if counted > 0 else None
    return Attainment(
        hour=_share(readings, at - _HOUR_S, at),
        six_hours=_share(readings, at - 6 * _HOUR_S, at),
        day=_share(readings, at - 24 * _HOUR_S, at),
        yesterday=_share(readings, at - 25 * _HOUR_S, at - 24 * _HOUR_S),
        window=window,
        budget_left=None if window is None else 1.0 - (1.0 - window) / (1.0 - target),
        target=target,
    )


def on_time_since(since: Mapping[str, float], now: float) -> dict[str, float | None]:
    """Return each pool's on-time share since the given time (unix seconds), over at most the last day.

    Only columns of two minutes that lie completely after that time count; None: there is none yet.
    """
    last = int(now // COARSE_S) - 1
    columns = read_past(COARSE_S, last - round(24 * _HOUR_S / COARSE_S), last, list(since)).columns if since else ()
    readings: dict[str, list[tuple[float, float, float]]] = {pool: [] for pool in since}
    for column in columns:
        for pool, values in column.pools.items():
            readings[pool].append((float(column.index * COARSE_S), values[_ON_TIME], values[_REQUESTS]))
    return {pool: _share(readings[pool], at, now) for pool, at in since.items()}


def _others() -> list[str]:
    return list(Objective.objects.exclude(pool="").values_list("pool", flat=True))


def _covered(objective: Objective) -> Callable[[str], bool]:
    if objective.pool:
        return lambda pool: pool == objective.pool
    others = set(_others())
    return lambda pool: pool not in others


def _share(readings: list[tuple[float, float, float]], since: float, until: float) -> float | None:
    """Return the on-time share of the columns that begin in the time span, weighted by their requests."""
    known = [
        (on_time, per_s)
        for at, on_time, per_s in readings
        if since <= at < until and not math.isnan(on_time) and per_s > 0
    ]
    weight = sum(per_s for _, per_s in known)
    return sum(on_time * per_s for on_time, per_s in known) / weight if weight else None
