"""The Savings page: a month's totals, its days, the holdback beside them, and the download."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe

from controlplane.fleet.visibility import visible_pools
from controlplane.platform.actor import Actor
from controlplane.platform.conflict import ConflictError
from controlplane.platform.field_problems import InvalidFieldsError
from controlplane.platform.models.job_run import JobRun, JobState
from controlplane.platform.resource.csv_text import csv_table, safe_text
from controlplane.platform.roles import NotAllowedError
from controlplane.savings.models.savings_rows import JOB, Saving, SavingsDay, SavingsState
from controlplane.savings.reading import (
    TITLES,
    SavingsQuery,
    missing_days,
    named_pools,
    next_replay,
    operated_pools,
    since_first_record,
    title_of,
    totals,
)
from controlplane.usage.summary import UsageQuery, month_query, sums
from planning.savings.day_savings import RangedFigure
from planning.savings.day_windows import LEAST_REQUESTS, LEAST_WINDOWS, SLICES
from web.shell.chart import BOTTOM, LEFT, RIGHT, TOP, Tick, place
from web.shell.console_request import asked, console_actor, go, kept, sent, with_query
from web.shell.frame import shell_context
from web.usage.page import PAGE, months, tabs

ADDRESS = "/savings"
COLUMNS = ("engine_h", "engine_h_low", "engine_h_high", "late", "late_low", "late_high")
_BAR = 0.6
"""Width of a day's bar relative to its place."""


@require_http_methods(["GET", "HEAD", "POST"])
def savings(request: HttpRequest) -> HttpResponse:
    """Show the savings of a month; on POST, replay a pool's day."""
    if request.method == "POST":
        return _replay(request)
    return _page(request)


def _replay(request: HttpRequest) -> HttpResponse:
    actor = console_actor(request)
    pool = get_object_or_404(visible_pools(actor), slug=sent(request, "pool"))
    try:
        day = date.fromisoformat(sent(request, "day"))
    except ValueError:
        return _page(request, "Write the day as 2026-11-28.", 422)
    # Here, because it imports the simulator.
    from controlplane.savings.job import start_replay

    try:
        start_replay(pool, day, actor=actor)
    except (ConflictError, InvalidFieldsError) as error:
        return _page(request, str(error), 409 if isinstance(error, ConflictError) else 422)
    except NotAllowedError as error:
        return _page(request, str(error), 403)
    return go(ADDRESS, pool=pool.slug)


def query_of(request: HttpRequest) -> SavingsQuery:
    """Return the selected part of the ledger; without a valid month, this month's."""
    try:
        month = month_query(asked(request, "month", 7), {})
    except (ValueError, OverflowError):
        month = month_query(f"{timezone.now():%Y-%m}", {})
    return SavingsQuery(month.since, month.until, asked(request, "pool"), asked(request, "tenant"))


def _page(request: HttpRequest, problem: str = "", status: int = 200) -> HttpResponse:
    actor, query = console_actor(request), query_of(request)
    rows, stored = query.rows(actor), list(query.days(actor))
    lines = totals(rows)
    against = asked(request, "against") or next((item.alternative for item in lines), "round_robin")
    chosen = [item for item in lines if item.alternative == against]
    days = since_first_record([*stored, *missing_days(query, stored)])
    days.sort(key=lambda item: (item.day, item.pool), reverse=True)
    checks = [check for item in stored if (check := item.compared) is not None]
    given = {"month": f"{query.since:%Y-%m}", "pool": query.pool, "tenant": query.tenant, "against": against}
    running = JobRun.objects.filter(job=JOB, state=JobState.ACTIVE, shard__in=visible_pools(actor).values("pk"))
    names = dict.fromkeys([*TITLES, *(item.alternative for item in lines)])
    context = shell_context(
        request,
        page=PAGE,
        tabs=tabs(actor),
        tab="savings",
        problem=problem,
        query=query,
        given=given,
        keep=kept(**{name: text for name, text in given.items() if name != "against"}),
        lines=[(item.title, with_query(ADDRESS, **{**given, "against": item.alternative}), item) for item in lines],
        against=title_of(against),
        chosen=[(name, title_of(name), name == against) for name in names],
        **{name: summed([getattr(item, name) for item in chosen]) for name in ("engine_h", "late", "dollars")},
        capped=any(item.capped for item in chosen),
        unpriced=sum(item.unpriced_days for item in chosen),
        tenants=[]
        if query.tenant
        else [
            (item.tenant, with_query(ADDRESS, **{**given, "tenant": item.tenant}), item)
            for item in totals(query.all_rows(actor).filter(alternative=against).exclude(tenant=""))
        ],
        picture=picture(query, rows.filter(alternative=against).select_related("of_day"), days),
        days=days,
        replayed=sum(item.state == SavingsState.REPLAYED for item in days),
        checks=checks,
        covered=sum(check.covered for check in checks),
        pools=named_pools(actor, query.days(actor)),
        operated=operated_pools(actor),
        months=months(timezone.now().date()),
        replay_day=timezone.now().date() - timedelta(days=1 if days else 0),
        coming=None if lines else _coming(actor, query, timezone.now()),
        running=[run.inputs for run in running],
    )
    return render(request, "savings/page.html", context, status=status)


def _coming(actor: Actor, query: SavingsQuery, now: datetime) -> dict[str, Any] | None:
    """Return what the next proof needs and when it appears; None for a past month."""
    today = now.date()
    if query.until < today:
        return None
    off = "" if settings.SAVINGS_CPU_S else "Replays are off (HEADWAY_SAVINGS_CPU_S is 0)."
    off = off if settings.RECORDING_BYTES else "Recording is off (HEADWAY_RECORDING_BYTES is 0)."
    at = next_replay(now)
    return {
        "off": off,
        "today": today,
        "requests": sums(UsageQuery(today, today, {"pool": query.pool, "tenant": query.tenant}).rows(actor))[0][
            "requests"
        ],
        "at": f"{at.day} {at:%b}, {at:%H:%M} UTC",
        "parts": (LEAST_REQUESTS, LEAST_WINDOWS, SLICES),
        "others": ", ".join(TITLES.values()),
    }


@require_safe
def download(request: HttpRequest) -> HttpResponse:
    """Send the month as CSV: a row per day, pool, tenant, and alternative; other days have a row without figures."""
    actor, query = console_actor(request), query_of(request)
    lines: list[list[Any]] = []
    for item in query.all_rows(actor).select_related("of_day").order_by("of_day__day", "of_day__pool", "pk"):
        of_day, price = item.of_day, item.of_day.price_per_h
        dollars = "" if price is None else f"{item.engine_h * price:.6f}"
        names = (of_day.pool, of_day.state, item.tenant, item.alternative)
        figures = (f"{getattr(item, name):.6f}" for name in COLUMNS)
        lines.append([of_day.day, *map(safe_text, names), *figures, int(item.capped), dollars])
    stored = list(query.days(actor))
    empty = [item for item in stored if item.state != SavingsState.REPLAYED]
    blank = [""] * (len(COLUMNS) + 4)
    lines += [[item.day, safe_text(item.pool), item.state, *blank] for item in (*empty, *missing_days(query, stored))]
    header = ("day", "pool", "state", "tenant", "alternative", *COLUMNS, "engine_h_is_lower_bound", "dollars")
    headers = {"Content-Disposition": f'attachment; filename="savings-{query.since:%Y-%m}.csv"'}
    body = csv_table(header, sorted(lines, key=lambda line: (str(line[0]), str(line[1]))))
    return HttpResponse(body, content_type="text/csv; charset=utf-8", headers=headers)


def summed(ranges: Sequence[RangedFigure | None]) -> RangedFigure | None:
    """Return the sum over pools; None if nothing is known."""
    known = [item for item in ranges if item is not None]
    if not known:
        return None
    return RangedFigure(*(sum(getattr(item, name) for item in known) for name in RangedFigure.__struct_fields__))


def picture(query: SavingsQuery, rows: Any, days: Sequence[SavingsDay]) -> dict[str, Any]:
    """Return the chart of engine hours saved per day, with ranges; days without figures are marked."""
    by_day: dict[date, list[Saving]] = {}
    for row in rows:
        by_day.setdefault(row.of_day.day, []).append(row)
    sums = {
        day: RangedFigure(*(sum(getattr(item, name) for item in of_day) for name in COLUMNS[:3]))
        for day, of_day in by_day.items()
    }
    top = max([0.0, *(item.high for item in sums.values())])
    bottom = min([0.0, *(item.low for item in sums.values())])
    span = (top - bottom) or 1.0

    def at(value: float) -> float:
        return BOTTOM - (value - bottom) / span * (BOTTOM - TOP)

    number = (query.until - query.since).days + 1
    pitch = (RIGHT - LEFT) / number
    bars = []
    for day, value in sorted(sums.items()):
        left = LEFT + (day - query.since).days * pitch
        low, high = sorted((at(0.0), at(value.mid)))
        bars.append(
            {
                "x": place(left + (1 - _BAR) / 2 * pitch),
                "width": place(_BAR * pitch),
                "y": place(low),
                "height": place(high - low),
                "middle": place(left + pitch / 2),
                "low": place(at(value.low)),
                "high": place(at(value.high)),
            }
        )
    without = {item.day for item in days} - sums.keys()
    return {
        "bars": bars,
        "without": [place(LEFT + ((day - query.since).days + 0.5) * pitch) for day in sorted(without)],
        "zero": place(at(0.0)),
        "up": [Tick(place(at(value)), f"{value:.3g}") for value in sorted({bottom, 0.0, top})],
        "across": [
            Tick(place(LEFT + (step + 0.5) * pitch), f"{query.since + timedelta(days=step):%d %b}")
            for step in range(0, number, 5)
        ],
        "summary": f"Engine hours saved per day; {len(sums)} of {number} days are replayed",
    }
