"""The capacity plan: the sum of regional peaks against the shared peak, costs, and the certainty of the saving."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from controlplane.capacity.demand import STEP_S, LoggedDemand, demand_now
from controlplane.capacity.job import FEWEST_MINUTES, JOB, MINUTES, start_reading, stored_demand
from controlplane.capacity.saving import (
    DAYS,
    MAX_DAYS,
    ON_DEMAND_PER_H,
    RESERVED_PER_H,
    UTILIZATION,
    FleetSize,
    InstallationPlan,
    Prices,
    installation_plan,
    range_words,
)
from controlplane.fleet.models.engine import Engine
from controlplane.platform.conflict import ConflictError
from controlplane.platform.format import clock_time, day, day_time, moment_of, percent, span, zone_name
from controlplane.platform.models.job_run import JobRun, JobState
from controlplane.platform.role import Role
from controlplane.platform.roles import NotAllowedError, may
from controlplane.request_log.store.segments import recorded_span
from routing.values.counted import count
from web.shell.chart import LEFT, RIGHT, Tick, place, point, ticks, x, y
from web.shell.console_request import asked, console_actor, go, with_query
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
    lines.append(("all", "all", _points(total, top)))
    key = [(name, f"whatif-line capacity-{series}") for name, series, _ in lines]
    return {
        # Name, series (which is its colour) and points.
        "lines": lines,
        "key": [*key, ("own peaks", "capacity-own"), ("registered", "capacity-present")],
        "up": [Tick(place(y(value / top)), f"{value:g}") for value in ticks(top)],
        "across": _moments(installation.demand.since, max(1, len(total) - 1) * installation.demand.step_s),
        "own": place(y(plan.own_peaks / top)),
        "present": place(y(present / top)),
        "summary": f"{count(present, 'engine')}; own peaks {plan.own_peaks:.1f}, shared peak {plan.shared_peak:.1f}",
    }


def finding(installation: InstallationPlan) -> tuple[str, str]:
    """Return whether the registered engines are enough, as a title and a sentence."""
    plan, present = installation.plan, sum(installation.present.values())
    gap = round(plan.shared_peak - present, 1)
    needed = f"needs {plan.shared_peak:.1f} engines that are {percent(installation.utilization)} busy"
    peak = f"The {'shared ' * (len(plan.regions) > 1)}peak {_peak_at(installation)} {needed}; {present} are registered."
    if len(plan.regions) == 1:
        spare = "Just enough engines at the peak" if gap == 0 else f"{-gap:.1f} engines to spare at the peak"
        return (f"Short by {gap:.1f} engines at the peak" if gap > 0 else spare), peak
    short = [
        f"{name} by {missing:.1f}"
        for name, region in plan.regions.items()
        if (missing := round(region.own - installation.present.get(name, 0), 1)) > 0
    ]
    if gap > 0:
        return f"All regions together are short by {gap:.1f} engines at the shared peak", peak
    if short:
        return (
            "Sharing covers regions that are short alone",
            f"Alone, short at its own peak: {', '.join(short)}. {peak}",
        )
    freed = round(plan.own_peaks - plan.shared_peak, 1)
    return f"Each region covers its own peak; sharing frees {freed:.1f} engines", peak


def _peak_at(installation: InstallationPlan) -> str:
    at = installation.demand.since + installation.plan.shared_step * installation.demand.step_s
    return f"on {day_time(at)} {zone_name()}"


def sizes(installation: InstallationPlan) -> list[tuple[str, FleetSize]]:
    """Return the fleet with one engine fewer, as it is, and with one more, each in words and figures."""
    present = sum(installation.present.values())
    words = {present - 1: "one lost", present: "registered", present + 1: "one more"}
    return [(note, installation.size(number)) for number, note in words.items() if number > 0]


def _points(values: Sequence[float], top: float) -> str:
    step = -(-len(values) // MOST_POINTS)
    # Each point is the highest of several, so that no peak is lost.
    highest = [max(values[at : at + step]) for at in range(0, len(values), step)]
    last = max(1, len(highest) - 1)
    return " ".join(point(x(index / last), value / top) for index, value in enumerate(highest))


def _moments(since: float, span_s: float) -> tuple[Tick, ...]:
    words = partial(clock_time, timespec="minutes") if span_s < 36 * 3600 else day
    return tuple(
        Tick(
            place(LEFT + number / _WORDS * (RIGHT - LEFT)),
            words(since + number / _WORDS * span_s),
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


@require_http_methods(["GET", "HEAD", "POST"])
@needs_all_pools(PAGE, "A capacity plan covers all pools. Viewing it")
def capacity(request: HttpRequest) -> HttpResponse:
    """Show the plan to people who have a role in all pools; on POST, read the demand again."""
    problem, status = "", 200
    if request.method == "POST":
        try:
            start_reading(console_actor(request), by_minute="minutes" in request.POST)
            return go(reverse("capacity"))
        except (ConflictError, NotAllowedError) as error:
            problem, status = str(error), 403 if isinstance(error, NotAllowedError) else 409
    fields = [_field(request, *item) for item in _FIELDS]
    wrong = any(field.error for field in fields)
    stored = None if wrong else stored_demand()
    context = shell_context(
        request,
        page=PAGE,
        tab="capacity",
        fields=fields,
        wrong=wrong,
        problem=problem,
        fragment=with_query(reverse("capacity"), **{field.name: field.chosen[0] for field in fields}, fragment=1),
        may_read=may(console_actor(request), Role.OPERATOR),
        **_reading(),
    )
    if stored is None:
        now = demand_now()
        context |= {"present": Engine.objects.count(), "now": f"{sum(now.values()):.1f}" if now else "—"}
    else:
        logged, read_at = stored
        days, reserved, on_demand, utilization = (float(field.value) for field in fields)
        context |= {
            **_plan(logged, Prices(reserved, on_demand, utilization, days)),
            "read_at": moment_of(read_at, timezone.now()),
        }
    part = "capacity/live.html" if "fragment" in request.GET else "capacity/page.html"
    return render(request, part, context, status=422 if wrong else status)


def _reading() -> dict[str, Any]:
    """Return the state of the job in words: its progress, why the last run failed, and what the log still lacks."""
    last = JobRun.objects.filter(job=JOB).order_by("-pk").first()
    running = last is not None and last.state == JobState.ACTIVE
    done = last.progress.get("done", 0) if last is not None and running else 0
    failed = last.outcome.get("reason", "") if last is not None and last.state == JobState.FAILED else ""
    if not settings.RECORDING_BYTES:
        return {"running": running, "done": done, "missing": "Recording is off (HEADWAY_RECORDING_BYTES is 0)."}
    recorded = recorded_span()
    missing = "No requests are recorded yet. Send some through the gateway."
    if recorded is None:
        return {"running": running, "done": done, "failed": failed, "missing": missing}
    first = f"{clock_time((recorded[0] // STEP_S + 2) * STEP_S, 'minutes')} {zone_name()}"
    missing = (
        f"The first plan, by the minute, needs {FEWEST_MINUTES} min of the log. The first full quarter of an hour ends "
        f"at {first}, if requests keep arriving."
    )
    logged_s = recorded[1] - recorded[0]
    minutes = min(MINUTES, int(logged_s // 60))
    return {
        "running": running,
        "done": done,
        "failed": failed,
        "missing": missing,
        "logged": span(logged_s),
        "full_at": first,
        "minutes": minutes if minutes >= FEWEST_MINUTES else 0,
    }


def _field(request: HttpRequest, name: str, label: str, default: float, most: float, hint: str) -> FormField:
    text = asked(request, name, 20) or f"{default:g}"
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    error = "" if 0 < value <= most else f"Enter a number above 0, at most {most:,.0f}."
    return FormField(name, label, help=hint, chosen=(text,), error=error)


def _plan(logged: LoggedDemand, prices: Prices) -> dict[str, Any]:
    installation = installation_plan(logged, prices)
    plan, present, now = installation.plan, sum(installation.present.values()), demand_now()
    title, sentence = finding(installation)
    return {
        "plan": plan,
        "title": title,
        "sentence": sentence,
        "saving": percent(plan.saving) if len(plan.regions) > 1 else "",
        "busy": percent(installation.utilization),
        "range": range_words(plan.range),
        "caveat": installation.caveat,
        "picture": demand_picture(installation, installation.utilization),
        "present": present,
        "gap": plan.shared_peak - present,
        "now": f"{sum(now.values()):.1f}" if now else "—",
        "peak": plan.shared_peak * installation.utilization,
        "peak_at": _peak_at(installation),
        "sizes": [(note, size, size.engines * prices.reserved_per_h) for note, size in sizes(installation)],
        "requests": installation.demand.requests,
        "covered": span(installation.span_s),
        "by_minute": installation.demand.step_s < STEP_S,
        "rows": [
            (name, installation.present.get(name, 0), now.get(name), peak, installation.present.get(name, 0) - peak.own)
            for name, peak in plan.regions.items()
        ],
        "costs": [
            ("Reserved for own peaks", plan.own_cost, ""),
            ("Reserved for the shared peak", plan.shared_cost, ""),
            ("Cheapest mix", plan.mixed_cost, f"{plan.mixed_reserved:.1f} reserved, the rest on demand"),
            ("On demand, perfect scaling", plan.on_demand_cost, "no delay, always available"),
        ],
    }
