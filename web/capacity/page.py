"""The capacity plan: the sum of regional peaks against the shared peak, costs, and the certainty of the saving."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from controlplane.capacity.demand import STEP_S
from controlplane.capacity.saving import (
    DAYS,
    MAX_DAYS,
    ON_DEMAND_PER_H,
    RESERVED_PER_H,
    UTILIZATION,
    InstallationPlan,
    Prices,
    installation_plan,
    range_words,
)
from controlplane.platform.format import percent
from routing.values.counted import count
from web.shell.chart import LEFT, RIGHT, Tick, place, point, ticks, x, y
from web.shell.console_request import asked
from web.shell.form_field import FormField
from web.shell.frame import shell_context
from web.shell.no_role import needs_all_pools

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


def peak_words(installation: InstallationPlan, utilization: float) -> str:
    """Return the shared peak against the present engines, and when it was."""
    total = [sum(step) / utilization for step in zip(*installation.demand.regions.values(), strict=True)]
    peak, present = max(total), sum(installation.present.values())
    at = datetime.fromtimestamp(installation.demand.since + total.index(peak) * STEP_S, UTC)
    gap = f"short by {peak - present:.1f}" if peak > present else f"{present - peak:.1f} spare"
    return f"Peak {peak:.1f} engines, {present} present: {gap} on {at:%d %b at %H:%M} UTC"


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


PAGE = "Regions"


_FIELDS = (
    ("days", "Log window (days)", DAYS, MAX_DAYS, ""),
    ("reserved", "Reserved ($/h)", RESERVED_PER_H, 1e6, "per engine"),
    ("on_demand", "On demand ($/h)", ON_DEMAND_PER_H, 1e6, "per engine"),
    ("utilization", "Peak utilization", UTILIZATION, 1.0, "share, 0 to 1"),
)


@require_safe
@needs_all_pools(PAGE, "A capacity plan covers all pools. Viewing it")
def capacity(request: HttpRequest) -> HttpResponse:
    """Show the plan to people who have a role in all pools."""
    fields = [_field(request, *item) for item in _FIELDS]
    wrong = any(field.error for field in fields)
    plan = None
    if not wrong:
        days, reserved, on_demand, utilization = (float(field.value) for field in fields)
        plan = installation_plan(time.time(), Prices(reserved, on_demand, utilization, days))
    context = shell_context(
        request, page=PAGE, tab="capacity", fields=fields, wrong=wrong, **(_plan(plan, utilization) if plan else {})
    )
    return render(request, "capacity/page.html", context, status=422 if wrong else 200)


def _field(request: HttpRequest, name: str, label: str, default: float, most: float, hint: str) -> FormField:
    text = asked(request, name, 20) or f"{default:g}"
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    error = "" if 0 < value <= most else f"Enter a number above 0, at most {most:,.0f}."
    return FormField(name, label, help=hint, chosen=(text,), error=error)


def _plan(installation: InstallationPlan, utilization: float) -> dict[str, Any]:
    plan = installation.plan
    return {
        "plan": plan,
        "finding": peak_words(installation, utilization),
        "saving": percent(plan.saving) if len(plan.regions) > 1 else "",
        "busy": percent(utilization),
        "range": range_words(plan.range),
        "caveat": installation.caveat,
        "picture": demand_picture(installation, utilization),
        "present": sum(installation.present.values()),
        "requests": installation.demand.requests,
        "hours": f"{installation.span_s / 3600:.1f}",
        "rows": [(region, installation.present.get(region, 0), peak) for region, peak in plan.regions.items()],
        "costs": [
            ("Reserved for own peaks", plan.own_cost, ""),
            ("Reserved for the shared peak", plan.shared_cost, ""),
            ("Cheapest mix", plan.mixed_cost, f"{plan.mixed_reserved:.1f} reserved, the rest on demand"),
            ("On demand, perfect scaling", plan.on_demand_cost, "no delay, always available"),
        ],
    }
