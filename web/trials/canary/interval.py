"""Draws a guardrail's interval against its threshold, in percent of a bar drawn as SVG by the template."""

from __future__ import annotations

import math

from planning.trials.comparison import TAIL, TTFT, GuardrailReading
from web.shell.chart import place

_MARGIN = 0.06
"""Share of the bar that stays empty at each end."""


def interval(reading: GuardrailReading) -> dict[str, str] | None:
    """Return positions on the bar, in percent from its left end; None if the difference is unknown.

    `none` is the position at which both arms are equal; empty if the guardrail has none.
    """
    if reading.difference is None or reading.lower is None or reading.upper is None:
        return None
    scale = math.log if reading.guard == TTFT else float
    # A share of requests is between zero and one.
    lowest = 0.0 if reading.guard == TAIL else -math.inf
    lower, upper = scale(max(reading.lower, lowest)), scale(reading.upper)
    difference, limit = scale(reading.difference), scale(reading.limit)
    none = None if reading.guard == TAIL else 0.0
    start, end = min(lower, limit, none or 0.0), max(upper, limit)
    span = max(end - start, 1e-9)

    def at(value: float) -> float:
        return (_MARGIN + (value - start) / span * (1 - 2 * _MARGIN)) * 100

    values = {"lower": lower, "difference": difference, "upper": upper, "limit": limit}
    marks = {name: place(at(value), 1) for name, value in values.items()}
    return {**marks, "width": place(at(upper) - at(lower), 1), "none": "" if none is None else place(at(none), 1)}
