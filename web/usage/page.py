"""The Usage page: requests, tokens, and money by tenant, key, model, pool, or day; and its downloads."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from controlplane.platform.actor import Actor
from controlplane.platform.format import percent, short
from controlplane.platform.resource.csv_text import csv_table, safe_text
from controlplane.platform.role import Role
from controlplane.platform.roles import may
from controlplane.usage.budgets import BUDGETS
from controlplane.usage.models.budget import ModelPrice
from controlplane.usage.summary import (
    COUNTS,
    NAMED,
    PoolMoney,
    UsageQuery,
    budget_uses,
    choices,
    key_names,
    money,
    month_query,
    sums,
)
from web.shell.chart import BOTTOM, LEFT, RIGHT, TOP, Tick, place, ticks, y
from web.shell.console_request import asked, console_actor, filter_chips, kept, with_query
from web.shell.frame import shell_context

PAGE, ADDRESS = "Usage", "/usage"
SPANS = {"1": "Today", "7": "7 days", "30": "30 days", "90": "90 days"}
USUAL_SPAN = "30"
MAX_ROWS = 200
TITLES = {"tenant": "Tenant", "key": "API key", "model": "Model", "pool": "Pool", "day": "Day"}
EXPORTED = ("day", "tenant", "key", "model", "pool")
_LAST_LABEL = 95.0
"""Rightmost place of a label in percent, at which a phone does not clip it."""
_BAR = 0.72
"""Width of a day's bar relative to its place."""


def tabs(actor: Actor) -> tuple[tuple[str, str, str], ...]:
    """Return (name, title, address) of the pages that the actor may see."""
    everyone = (("usage", "Overview", ADDRESS), ("savings", "Savings", "/savings"))
    others = (("budgets", "Budgets", "/usage/budgets"), ("prices", "Prices", "/usage/prices"))
    return (*everyone, *others) if may(actor, Role.VIEWER) else everyone


@require_safe
def usage(request: HttpRequest) -> HttpResponse:
    """Show usage in a time span."""
    actor, query, given = console_actor(request), query_of(request), _given(request)
    group = given.get("group", "tenant")
    total, costs = sums(query.rows(actor))[0], money(actor, query)
    rows = sums(query.rows(actor), group)
    names = key_names(row["key"] for row in rows) if group == "key" else {}
    tokens = total["prompt_tokens"] + total["output_tokens"]
    named = {name: text for name, text in given.items() if name in NAMED}
    context = shell_context(
        request,
        page=PAGE,
        tabs=tabs(actor),
        tab="usage",
        total=total,
        tokens=tokens,
        figures=_figures(total, costs),
        costs=costs,
        priced=total["dollars"] > 0 or ModelPrice.objects.exists(),
        picture=picture(query, sums(query.rows(actor), "day")),
        rows=[
            {**_row(row, group, names, tokens, given), "requests_of": requests_of(query, group, str(row[group]))}
            for row in rows[:MAX_ROWS]
        ],
        more=max(0, len(rows) - MAX_ROWS),
        group=group,
        title=TITLES[group],
        groups=[(name, title, with_query(ADDRESS, **{**given, "group": name})) for name, title in TITLES.items()],
        spans=[
            (days, words, with_query(ADDRESS, **{**given, "days": days, "month": ""})) for days, words in SPANS.items()
        ],
        span="" if "month" in given else given.get("days", USUAL_SPAN),
        given=given,
        query=query,
        options=_options(choices(actor, query), given),
        chips=filter_chips(ADDRESS, named, TITLES, key_names([named["key"]]) if "key" in named else {}),
        all=with_query(ADDRESS, **{name: text for name, text in given.items() if name not in NAMED}),
        keep=kept(**given),
        months=months(timezone.now().date()),
        uses=budget_uses(BUDGETS.rows(actor), timezone.now()) if may(actor, Role.VIEWER) else [],
        whole_fleet=may(actor, Role.VIEWER),
    )
    return render(request, "usage/page.html", context)


@require_safe
def download(request: HttpRequest, form: str) -> HttpResponse:
    """Send the selected part of the ledger by day, tenant, key, model, and pool as CSV or JSON."""
    query = query_of(request)
    rows = sorted(sums(query.rows(console_actor(request)), *EXPORTED), key=lambda row: [str(row[g]) for g in EXPORTED])
    name = f"usage-{query.since}-to-{query.until}.{form}"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    if form == "json":
        return JsonResponse({"since": query.since, "until": query.until, "rows": rows}, headers=headers)
    lines = (
        [*(safe_text(str(row[g])) for g in EXPORTED), *(row[n] for n in COUNTS), f"{row['dollars']:.9f}"]
        for row in rows
    )
    return HttpResponse(
        csv_table((*EXPORTED, *COUNTS, "dollars"), lines), content_type="text/csv; charset=utf-8", headers=headers
    )


def _options(names: dict[str, list[str]], given: dict[str, str]) -> list[tuple[str, str, str, list[tuple[str, str]]]]:
    """Return the filter's fields: name, title, chosen value, and choices with their words."""
    keys = key_names(names.get("key", ()))
    return [
        (name, TITLES[name], given.get(name, ""), [(text, keys.get(text, text)) for text in texts])
        for name, texts in names.items()
    ]


def _given(request: HttpRequest) -> dict[str, str]:
    """Return the parameters of the address that select something."""
    given = {name: text for name in NAMED if (text := asked(request, name))}
    if asked(request, "group") in TITLES:
        given["group"] = asked(request, "group")
    if asked(request, "days") in SPANS:
        given["days"] = asked(request, "days")
    try:
        month_query(asked(request, "month", 7), {})
        given["month"] = asked(request, "month", 7)
    except ValueError:
        pass
    return given


def query_of(request: HttpRequest) -> UsageQuery:
    """Return the selected part of the ledger. Unknown values are ignored."""
    given = _given(request)
    names = {name: given.get(name, "") for name in NAMED}
    if "month" in given:
        return month_query(given["month"], names)
    today = timezone.now().date()
    return UsageQuery(today - timedelta(days=int(given.get("days", USUAL_SPAN)) - 1), today, names)


def months(today: date) -> list[str]:
    """Return the last twelve months, such as 2026-11, the newest first."""
    ends = [today]
    while len(ends) < 12:
        ends.append(ends[-1].replace(day=1) - timedelta(days=1))
    return [f"{end:%Y-%m}" for end in ends]


def _figures(total: dict[str, Any], costs: Sequence[PoolMoney]) -> dict[str, Any]:
    """Return the money of all pools; None where a price or a measurement is missing."""
    known, saved = [item.cost for item in costs], [item.saved for item in costs if item.saved is not None]
    cost = sum(item for item in known if item is not None) if any(item is not None for item in known) else None
    tokens, unpriced_h = sum(item.tokens for item in costs), sum(item.unpriced_h for item in costs)
    return {
        "cached": percent(total["cached_tokens"] / total["prompt_tokens"] if total["prompt_tokens"] else None),
        "cost": cost,
        "per_million": cost / tokens * 1e6 if cost is not None and tokens and unpriced_h < 1e-6 else None,
        "engine_h": sum(item.engine_h for item in costs),
        "unpriced": unpriced_h if unpriced_h > 1e-6 else 0.0,
        "saved": sum(saved) if saved else None,
    }


def _row(row: dict[str, Any], group: str, names: dict[str, str], tokens: int, given: dict[str, str]) -> dict[str, Any]:
    """Return a line of the table: its name, where it leads, and its share of all tokens."""
    value = str(row[group])
    link = ""
    if group == "day":
        link = with_query(ADDRESS, **{**given, "group": "tenant", "month": value[:7]})
    elif value:
        follows = {"tenant": "key", "key": "day", "model": "tenant", "pool": "tenant"}[group]
        link = with_query(ADDRESS, **{**given, group: value, "group": follows})
    own = row["prompt_tokens"] + row["output_tokens"]
    unnamed = "external provider" if group == "pool" else "—"
    return {**row, "name": names.get(value, value) or unnamed, "link": link, "share": own / tokens if tokens else 0.0}


def requests_of(query: UsageQuery, group: str, value: str) -> str:
    """Return the address of a row's recorded requests; empty if the Requests page has no such filter.

    Records are kept for a shorter time than the ledger, and successful requests are sampled.
    """
    names = {name: text for name, text in {**query.names, group: value}.items() if text and name != "day"}
    if not names.keys() <= {"tenant", "pool"} or (group != "day" and not value):
        return ""
    begin, end = (date.fromisoformat(value),) * 2 if group == "day" else (query.since, query.until)
    return with_query("/requests", **names, since=begin, until=end + timedelta(days=1))


def picture(query: UsageQuery, days: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the chart of tokens per day: uncached prompt, cached prompt, and output, stacked."""
    by_day = {row["day"]: row for row in days}
    top = 1.05 * max((row["prompt_tokens"] + row["output_tokens"] for row in days), default=0)
    pitch = (RIGHT - LEFT) / query.days
    bars = []
    for number in range(query.days if top else 0):
        row = by_day.get(query.since + timedelta(days=number))
        at, below = LEFT + (number + (1 - _BAR) / 2) * pitch, 0
        for term, amount in _terms(row) if row else ():
            high = amount / top * (BOTTOM - TOP)
            below += amount
            if amount:
                bars.append(
                    (term, place(at), place(pitch * _BAR), f"{BOTTOM - below / top * (BOTTOM - TOP):.2f}%", place(high))
                )
    every = -(-query.days // 6)
    return {
        "bars": bars,
        "up": [Tick(place(y(value / top)), short(value)) for value in ticks(top)] if top else [],
        "across": [
            Tick(
                place(min(LEFT + (number + 0.5) * pitch, _LAST_LABEL)), f"{query.since + timedelta(days=number):%d %b}"
            )
            # From the last day backwards, so that today has its label.
            for number in reversed(range(query.days - 1, -1, -every))
        ],
        "summary": f"Tokens per day; {len(days)} of {query.days} days have usage",
    }


def _terms(row: dict[str, Any]) -> tuple[tuple[str, int], ...]:
    cached = row["cached_tokens"]
    return ("prompt", row["prompt_tokens"] - cached), ("cached", cached), ("output", row["output_tokens"])
