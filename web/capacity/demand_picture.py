"""The chart of demand over time, per region and in total, in percent of its width and height."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from controlplane.capacity.demand import STEP_S
from controlplane.capacity.saving import InstallationPlan
from routing.values.counted import count
from web.shell.chart import LEFT, RIGHT, Tick, place, point, ticks, x, y

MOST_LINES = 5
"""Number of regions with a line of their own; the regions with the highest peaks are chosen."""
MOST_POINTS = 200
_WORDS = 6


def demand_picture(installation: InstallationPlan, utilization: float) -> dict[str, Any]:
    """Return the chart of a plan's demand, in number of engines."""
    plan, present = installation.plan, sum(installation.present.values())
    top = 1.05 * max(plan.own_peaks, float(present), 0.001)
    names = sorted(plan.regions, key=lambda name: (-plan.regions[name].own, name))[:MOST_LINES]
    demand = {name: [value / utilization for value in installation.demand.regions[name]] for name in names}
    total = [sum(step) / utilization for step in zip(*installation.demand.regions.values(), strict=True)]
    lines = [(name, f"s{number}", _points(demand[name], top)) for number, name in enumerate(names, 1)]
    return {
        # Name, series (which is its colour) and points.
        "lines": [*lines, ("all", "all", _points(total, top))],
        "up": [Tick(place(y(value / top)), f"{value:g}") for value in ticks(top)],
        "across": _moments(installation.demand.since, len(total)),
        "own": place(y(plan.own_peaks / top)),
        "present": place(y(present / top)),
        "summary": f"{count(present, 'engine')}; own peaks {plan.own_peaks:.1f}, shared peak {plan.shared_peak:.1f}",
    }


def _points(values: Sequence[float], top: float) -> str:
    step = -(-len(values) // MOST_POINTS)
    # Each point is the highest of several, so that no peak is lost.
    highest = [max(values[at : at + step]) for at in range(0, len(values), step)]
    last = max(1, len(highest) - 1)
    return " ".join(point(x(index / last), value / top) for index, value in enumerate(highest))


def _moments(since: float, steps: int) -> tuple[Tick, ...]:
    span_s = max(1, steps - 1) * STEP_S
    form = "%H:%M" if span_s < 36 * 3600 else "%d %b"
    return tuple(
        Tick(
            place(LEFT + number / _WORDS * (RIGHT - LEFT)),
            datetime.fromtimestamp(since + number / _WORDS * span_s, UTC).strftime(form),
        )
        for number in range(_WORDS)
    )
