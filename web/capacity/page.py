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
from controlplane.capacity.job import FEWEST_MINUTES, JOB, MINUTES, first_full_plan, start_reading, stored_demand
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
from web.shell.chart import Tick, place, point, ticks, x, y
from web.shell.console_request import asked, console_actor, go, with_query
from web.shell.form_field import FormField
from web.shell.frame import shell_context
from web.shell.no_role import needs_all_pools

MOST_LINES = 5
"""Number of regions with a line of their own; the regions with the highest peaks are chosen."""
MOST_POINTS = 200
MOST_ABOVE = 4.0
"""Limits above this multiple of the peak demand are stated, not drawn."""
_WORDS = 6


def demand_picture(installation: InstallationPlan) -> dict[str, Any]:
    """Return the chart of a plan's demand in busy engines, as in the tiles."""
    plan, demand, present = installation.plan, installation.demand, sum(installation.present.values())
    names = sorted(plan.regions, key=lambda name: (-plan.regions[name].own, name))[:MOST_LINES]
    series = [(name, f"s{number}", demand.regions[name]) for number, name in enumerate(names, 1)]
    limits = [
        ("registered engines", "present", float(present)),
        (f"{percent(installation.utilization)} of them", "target", present * installation.utilization),
    ]
    highest = installation.peak
    if len(plan.regions) > 1:
        highest = plan.own_peaks * installation.utilization
        series.append(("all regions", "all", installation.total))
        limits.insert(0, ("sum of own peaks", "own", highest))
    # Limits far above the demand would press its line onto the axis.
    top = 1.05 * max(highest, *(limit for *_, limit in limits if limit <= MOST_ABOVE * highest), 0.001)
    return {
        # Name, series (which is its colour) and points.
        "lines": [(name, style, _points(values, top)) for name, style, values in series],
        "limits": [(style, place(y(limit / top))) for _, style, limit in limits if limit <= top],
        "key": [
            *((name, f"whatif-line capacity-{style}") for name, style, _ in series),
            *((_limit_words(name, limit, top), f"capacity-{style}") for name, style, limit in limits),
        ],
        "up": [Tick(place(y(value / top)), f"{value:g}") for value in ticks(top)],
        "across": _moments(demand.since, len(installation.total), demand.step_s),
        "summary": f"Demand peaks at {installation.peak:.1f} busy engines; {count(present, 'engine')} registered",
    }


def _limit_words(name: str, limit: float, top: float) -> str:
    return f"{name} {limit:.1f}{', above the chart' if limit > top else ''}"


def finding(installation: InstallationPlan) -> tuple[str, str]:
    """Return whether the registered engines are enough, as a title and a sentence."""
    plan, present = installation.plan, sum(installation.present.values())
    gap = round(plan.shared_peak - present, 1)
    shared = "shared " * (len(plan.regions) > 1)
    peak = (
        f"The {shared}peak {_peak_at(installation)} keeps {installation.peak:.1f} engines fully busy. At a target of "
        f"{percent(installation.utilization)} busy, it needs {plan.shared_peak:.1f} engines; {present} are registered."
    )
    if len(plan.regions) == 1:
        when = f"at the peak of the last {span(installation.span_s)}"
        spare = f"Just enough engines {when}" if gap == 0 else f"{-gap:.1f} engines to spare {when}"
        return (f"Short by {gap:.1f} engines {when}" if gap > 0 else spare), peak
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


def _moments(since: float, steps: int, step_s: float) -> tuple[Tick, ...]:
    """Return labels at the steps with which a new minute, or in a long span a new day, begins."""
    words = partial(clock_time, timespec="minutes") if steps * step_s < 36 * 3600 else day
    named = [(step, words(since + step * step_s)) for step in range(steps)]
    new = [item for at, item in enumerate(named) if at == 0 or item[1] != named[at - 1][1]]
    shares = [(step / max(1, steps - 1), label) for step, label in new[:: -(-len(new) // _WORDS)]]
    # A label at the right edge would be clipped.
    return tuple(Tick(place(x(share)), label) for share, label in shares if share < 0.95)


PAGE = "Regions"


_FIELDS = (
    ("days", "Log window (days)", DAYS, MAX_DAYS, ""),
    ("reserved", "Reserved ($/h)", RESERVED_PER_H, 1e6, f"per engine; assumed: {RESERVED_PER_H:g}"),
    ("on_demand", "On demand ($/h)", ON_DEMAND_PER_H, 1e6, f"per engine; assumed: {ON_DEMAND_PER_H:g}"),
    ("utilization", "Target utilization", UTILIZATION, 1.0, "busy share at the peak, 0 to 1"),
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
    if recorded is None:
        missing = "No requests are recorded yet. Send some through the gateway."
        return {"running": running, "done": done, "failed": failed, "missing": missing}
    first = f"{clock_time(recorded[0] + FEWEST_MINUTES * 60, 'minutes')} {zone_name()}"
    full = first_full_plan(recorded[0])
    logged_s = recorded[1] - recorded[0]
    minutes = min(MINUTES, int(logged_s // 60))
    return {
        "running": running,
        "done": done,
        "failed": failed,
        "missing": f"The first plan needs {FEWEST_MINUTES} min of requests; it appears soon after {first}.",
        "logged": span(logged_s),
        "first_at": first,
        "full_at": f"{clock_time(full, 'minutes')} {zone_name()}",
        "minutes": minutes if recorded[1] >= full and minutes >= FEWEST_MINUTES else 0,
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
    plan, demand, present = installation.plan, installation.demand, installation.present
    title, sentence = finding(installation)
    several = len(plan.regions) > 1
    own = [("Reserved for own peaks", plan.own_cost, "")] if several else []
    return {
        "plan": plan,
        "several": several,
        "title": title,
        "sentence": sentence,
        "saving": percent(plan.saving) if several else "",
        "busy": percent(installation.utilization),
        "range": range_words(plan.range),
        "caveat": installation.caveat,
        "picture": demand_picture(installation),
        "present": sum(present.values()),
        "latest": installation.total[-1],
        "latest_at": f"{clock_time(demand.until - demand.step_s, 'minutes')} to {clock_time(demand.until, 'minutes')}",
        "peak": installation.peak,
        "peak_at": _peak_at(installation),
        "sizes": [(note, size, size.engines * prices.reserved_per_h) for note, size in sizes(installation)],
        "requests": demand.requests,
        "covered": span(installation.span_s),
        "by_minute": demand.step_s < STEP_S,
        "rows": [
            (name, present.get(name, 0), demand.regions[name][-1], peak, present.get(name, 0) - peak.own)
            for name, peak in plan.regions.items()
        ],
        "costs": [
            *own,
            (f"Reserved for the {'shared ' * several}peak", plan.shared_cost, f"{plan.shared_peak:.1f} engines"),
            ("Cheapest mix", plan.mixed_cost, f"{plan.mixed_reserved:.1f} reserved, the rest on demand"),
            ("On demand", plan.on_demand_cost, "if scaling has no delay"),
        ],
        "reserved": f"{prices.reserved_per_h:.2f}",
        "on_demand": f"{prices.on_demand_per_h:.2f}",
        "assumed": (prices.reserved_per_h, prices.on_demand_per_h) == (RESERVED_PER_H, ON_DEMAND_PER_H),
    }
