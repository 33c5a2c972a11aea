"""The period of the history that a viewer selects."""

from __future__ import annotations

import math
from dataclasses import dataclass

from controlplane.history.collector import FINE_S
from controlplane.history.rollups import COARSE_S, KEPT_S

WEEK_COLUMN_S = 840


class BadRangeError(ValueError):
    """The query has no known range, or an invalid end; the message lists what is allowed."""


@dataclass(frozen=True, slots=True)
class Range:
    """One choice of the time control; the strip below shows the longer period within which it can be moved."""

    name: str
    span_s: int
    column_s: int
    strip_column_s: int
    strip_columns: int

    @property
    def columns(self) -> int:
        """Number of columns in the picture."""
        return self.span_s // self.column_s


RANGES = {
    item.name: item
    for item in (
        Range("5m", 300, FINE_S, FINE_S, 360),
        Range("1h", 3600, FINE_S, COARSE_S, 720),
        Range("24h", 86_400, COARSE_S, WEEK_COLUMN_S, 720),
    )
}


@dataclass(frozen=True, slots=True)
class Stretch:
    """A range with its position in time; columns `first`..`last`, strip columns up to `strip_last`."""

    range: Range
    last: int
    strip_last: int
    live: bool

    @property
    def first(self) -> int:
        """Absolute number of the oldest column."""
        return self.last - self.range.columns + 1

    @property
    def end(self) -> float:
        """Unix seconds of the right edge."""
        return float((self.last + 1) * self.range.column_s)


def stretch_of(name: str, end: str, at: float) -> Stretch:
    """Return the period of range `name` that ends at Unix second `end`; an empty or future `end` means live.

    `at` is the current time. Raise BadRangeError for an unknown range or an invalid end.
    """
    chosen = RANGES.get(name)
    if chosen is None:
        raise BadRangeError(f"There is no range {name!r}; use one of {', '.join(RANGES)}.")
    moment = _moment(end, at)
    now_column = int(at // chosen.column_s)
    strip_now = int(at // chosen.strip_column_s)
    if moment is None:
        return Stretch(chosen, now_column, strip_now, live=True)
    last = min(now_column, math.ceil(moment / chosen.column_s) - 1)
    half = chosen.strip_columns // 2
    over = int(moment // chosen.strip_column_s) + half
    shown_at_now = strip_now - over < half
    return Stretch(chosen, last, strip_now if shown_at_now else over, live=False)


def _moment(end: str, at: float) -> float | None:
    if not end:
        return None
    try:
        moment = float(end)
    except ValueError:
        raise BadRangeError(f"end must be unix seconds, not {end!r}.") from None
    oldest = at - max(KEPT_S.values())
    # In this form, NaN is rejected, too.
    if not oldest <= moment <= at + 86_400:
        raise BadRangeError("end must be within the last 30 days; older history is deleted.")
    return moment if moment < at else None
