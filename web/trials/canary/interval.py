"""Draws a guard's interval against its threshold, as places in percent of a bar that the template draws as SVG."""

from __future__ import annotations

import math
from dataclasses import dataclass

from planning.trials.arm_comparison import TAIL, TTFT, GuardrailReading
from web.shell.chart import place

_MARGIN = 0.06
"""Of the bar, left free at either end."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Places on the bar, percent from its left end."""

    lower: str
    difference: str
    upper: str
    width: str
    limit: str
    none: str
    """Where both arms are alike; empty: the guard has no such place."""


def interval(reading: GuardrailReading) -> Interval | None:
    """Return the drawn interval; None: nothing is known of the difference."""
    if reading.difference is None or reading.lower is None or reading.upper is None:
        return None
    scale = math.log if reading.guard == TTFT else float
    # A share of requests lies between nothing and all of them.
    lowest = 0.0 if reading.guard == TAIL else -math.inf
    lower, upper = scale(max(reading.lower, lowest)), scale(reading.upper)
    difference, limit = scale(reading.difference), scale(reading.limit)
    none = None if reading.guard == TAIL else 0.0
    start, end = min(lower, limit, none or 0.0), max(upper, limit)
    span = max(end - start, 1e-9)

    def at(value: float) -> float:
        return (_MARGIN + (value - start) / span * (1 - 2 * _MARGIN)) * 100

    return Interval(
        lower=place(at(lower), 1),
        difference=place(at(difference), 1),
        upper=place(at(upper), 1),
        width=place(at(upper) - at(lower), 1),
        limit=place(at(limit), 1),
        none="" if none is None else place(at(none), 1),
    )
