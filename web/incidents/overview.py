"""The Incidents page: open and past incidents by filter, the last 30 days, and what is watched."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from django.db.models import Count, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from controlplane.history.bucket import POOL_FLOATS
from controlplane.history.rollups import COARSE_S
from controlplane.history.store import read_pool_values
from controlplane.incidents import handling, words
from controlplane.incidents.models.incident import Incident, IncidentState
from controlplane.incidents.notices import episode_of
from controlplane.incidents.rules import RULES, conditions_now
from controlplane.objectives.objective import targets
from controlplane.platform.format import UNKNOWN, clock_time, day, percent, some_names, span
from controlplane.platform.role import Role
from controlplane.platform.roles import may
from planning.incidents.episodes import Episode
from planning.incidents.signs import missed
from planning.incidents.symptoms import Symptom
from routing.values.counted import count
from web.shell.chart import place
from web.shell.console_request import asked, console_actor, filter_chips, kept, listed, with_query
from web.shell.frame import shell_context

ADDRESS = "/incidents"
LABELS = {"state": "state", "pool": "pool", "cause": "cause", "days": "days"}
SPANS = {"1": "24 h", "7": "7 days", "30": "30 days", "": "All"}
"""Days of the filter, in words."""
PAST = timedelta(days=30)
MAX_NAMED = 3
"""Conditions that hold now, named above the list."""
MAX_LISTED = 8
"""Causes, and pools, with a link of their own."""
BESIDE_S = 600.0
"""Seconds of the on-time line before the onset and after the end."""
SETTLES_S = 3.0 * COARSE_S
"""Seconds after which a column is stored, and stays as it is."""
_SHARE, _PER_S = POOL_FLOATS.index("on_time"), POOL_FLOATS.index("requests_per_s")
Line = tuple[tuple[float, float], ...]
"""(Unix seconds, on-time share)."""
Links = Callable[[str, Sequence[tuple[str, str]]], list[tuple[str, str, bool]]]
UNSURE = "unsure"
"""Value of the filter for incidents without a likely cause."""


@require_safe
def overview(request: HttpRequest) -> HttpResponse:
    """Show open incidents first, then closed ones by day, newest first; with `?fragment` only the part that changes."""
    actor, now = console_actor(request), timezone.now()
    given = {name: value for name in LABELS if (value := asked(request, name, 64))}
    given = {name: value for name, value in given.items() if name != "days" or value in SPANS}
    visible = handling.visible_incidents(actor)
    states = dict(_matching(visible, given | {"state": ""}, now).values_list("state").annotate(Count("pk")).order_by())
    page = listed(request, _matching(visible, given, now).order_by("-state", "-onset", "-id"))
    opened = list(visible.filter(state=IncidentState.OPEN).order_by("onset")[:100])
    last, target = visible.order_by("-onset", "-id").first(), targets()

    def links(name: str, choices: Sequence[tuple[str, str]]) -> list[tuple[str, str, bool]]:
        """Return (words, address, chosen) of each value of one condition; the others stay."""
        return [
            (label, with_query(ADDRESS, **given | {name: value}), value == given.get(name, ""))
            for value, label in choices
        ]

    cause = given.get("cause", "")
    pools = [pool for pool in visible.order_by("pool").values_list("pool", flat=True).distinct() if pool][:MAX_LISTED]
    chosen = [(name, f"{name.capitalize()} {states.get(name, 0)}") for name in IncidentState.values]
    context = shell_context(
        request,
        page="Incidents",
        groups=_grouped(page, target, now),
        paged=page,
        keep=kept(**given),
        open=len(opened),
        title=_title(opened, last, now),
        last=last,
        longest=opened[0] if opened else None,
        watched=_watched(now) if may(actor, Role.VIEWER) else None,
        picks=[
            ("State", links("state", [("", f"All {sum(states.values())}"), *chosen])),
            ("Began within", links("days", list(SPANS.items()))),
            *([("Pool", links("pool", [("", "All pools"), *((pool, pool) for pool in pools)]))] if pools[1:] else []),
        ],
        chips=filter_chips(ADDRESS, given, LABELS, {cause: words.cause_title(cause)}),
        fragment=with_query(ADDRESS, **given, page=asked(request, "page", 6), fragment=1),
        **_past(visible, links, now),
    )
    return render(request, "incidents/rows.html" if "fragment" in request.GET else "incidents/list.html", context)


def _matching(visible: QuerySet[Incident], given: Mapping[str, str], now: datetime) -> QuerySet[Incident]:
    conditions: dict[str, Any] = {name: given[name] for name in ("state", "pool", "cause") if given.get(name)}
    if given.get("cause") == UNSURE:
        conditions["cause"] = ""
    if given.get("days"):
        conditions["onset__gte"] = now - timedelta(days=int(given["days"]))
    return visible.filter(**conditions)


def _title(opened: Sequence[Incident], last: Incident | None, now: datetime) -> str:
    if opened:
        return count(len(opened), "open incident")
    if last is None:
        return "No incidents yet"
    return f"No incident for {span((now - (last.closed_at or last.last_bad_at)).total_seconds())}"


def _watched(now: datetime) -> dict[str, Any]:
    """Return how many rules are watched, and what each condition that holds or may hold soon is about."""
    current = conditions_now(now)
    watched = {"rules": sum(bool(rule.symptom) for rule in RULES), "known": current is not None}
    if current is None:
        return watched
    titles = {rule.symptom: rule.title for rule in RULES}
    details = Incident.objects.filter(state=IncidentState.OPEN).values_list("pk", "detail__present")
    owners = {tuple(identity): number for number, present in details for identity in present or ()}

    def named(items: Sequence[Symptom]) -> list[tuple[str, int | None]]:
        """Return the words of each condition, and the number of the open incident that it is part of."""
        return [
            (f"{titles.get(item.kind, item.kind)} {item.name or item.pool_id}".strip(), owners.get(item.identity))
            for item in items[:MAX_NAMED]
        ]

    return watched | {"firing": named(current.firing), "pending": named(current.pending)}


def _past(visible: QuerySet[Incident], links: Links, now: datetime) -> dict[str, Any]:
    """Return the figures of the last 30 days: incidents by cause, by pool, and by day."""
    rows = list(visible.filter(onset__gte=now - PAST).values_list("cause", "onset", "closed_at"))
    before = visible.filter(onset__gte=now - 2 * PAST, onset__lt=now - PAST).count()
    spans = [(onset, end or now) for _, onset, end in rows]
    lengths = [(end - onset).total_seconds() for onset, end in spans]
    ranked = Counter(cause or UNSURE for cause, _, _ in rows).most_common(MAX_LISTED)
    named = links("cause", [(cause, words.cause_title(cause)) for cause, _ in ranked])
    return {
        "past": len(rows),
        "before": before,
        "spent": span(_covered_s(spans)) if rows else "0",
        "longest_span": span(max(lengths)) if rows else "",
        "median": span(statistics.median(lengths)) if rows else UNKNOWN,
        "causes": [
            (*link, number, place(100 * number / ranked[0][1])) for link, (_, number) in zip(named, ranked, strict=True)
        ],
        "days": _days(spans, now),
    }


def _covered_s(spans: Sequence[tuple[datetime, datetime]]) -> float:
    """Return the seconds in at least one of the spans."""
    covered, until = timedelta(), datetime.min.replace(tzinfo=UTC)
    for begin, end in sorted(spans):
        covered += max(timedelta(), end - max(begin, until))
        until = max(until, end)
    return covered.total_seconds()


def _days(spans: Sequence[tuple[datetime, datetime]], now: datetime) -> list[dict[str, str]]:
    """Return a bar for each of the last 30 days in the person's zone: incidents that began, and their time."""
    days = [timezone.localdate(now - timedelta(days=back)) for back in reversed(range(PAST.days))]
    began = {at: [item for item in spans if timezone.localdate(item[0]) == at] for at in days}
    taken = {at: _covered_s(items) for at, items in began.items()}
    top, step = max(taken.values(), default=0.0) or 1.0, 100 / len(days)
    return [
        {
            "at": place(number * step),
            "width": place(0.8 * step),
            "top": place(100 - (high := 8 + 92 * taken[at] / top if began[at] else 4)),
            "height": place(high),
            "words": f"{at.day} {at:%b}: {count(len(began[at]), 'incident')}, {span(taken[at])}" if began[at] else "",
        }
        for number, at in enumerate(days)
    ]


def _grouped(items: Iterable[Incident], target: Mapping[str, float], now: datetime) -> list[tuple[str, list[Any]]]:
    """Return the rows under Open, Today, and further days."""
    groups: dict[str, list[Any]] = {}
    for item in items:
        is_today = timezone.localdate(item.onset) == timezone.localdate(now)
        name = "Open" if item.state == IncidentState.OPEN else "Today" if is_today else day(item.onset)
        groups.setdefault(name, []).append(_row(item, target.get(item.pool, target[""]), now))
    return list(groups.items())


def _row(item: Incident, target: float, now: datetime) -> dict[str, Any]:
    episode, end = episode_of(item), item.closed_at or now
    tenants = episode.hit.get("tenants", {})
    hit = sorted((name for name in tenants if name and missed(tenants[name])), key=lambda name: -missed(tenants[name]))
    return {
        "incident": item,
        "critical": words.is_critical(episode),
        "hit": words.outcome_words(words.all_hit(episode)),
        "who": some_names(hit, 2),
        "why": words.why(episode),
        "onset": clock_time(item.onset),
        "lasted": span((end - item.onset).total_seconds()),
        "ended": clock_time(item.closed_at) if item.closed_at else "",
        "line": _picture(item, episode, target, now),
    }


def _picture(item: Incident, episode: Episode, target: float, now: datetime) -> dict[str, str] | None:
    """Return the on-time share around the incident as a polyline in a box of 100 × 100; None: not recorded."""
    onset, end = item.onset.timestamp(), (item.closed_at or now).timestamp()
    first, last = onset - BESIDE_S, min(now.timestamp(), end + BESIDE_S)
    # What is stored of a past incident stays; the columns of the present are still to come.
    line = _past_line(item.pool, first, last) if end + BESIDE_S + SETTLES_S < now.timestamp() else ()
    line = line or _line(item.pool, first, last)
    if item.closed_at is None and episode.on_time is not None:
        line = (*line, (last, episode.on_time))
    if len(line) < 2:
        return None
    low = min(*(share for _, share in line), target) - 0.02

    def across(at: float) -> float:
        return 100 * min(1.0, max(0.0, (at - first) / (last - first)))

    def down(share: float) -> float:
        return 4 + 92 * (1 - (share - low) / (1 - low))

    return {
        "points": " ".join(f"{across(at):.1f},{down(share):.1f}" for at, share in line),
        "begin": f"{across(onset):.1f}",
        "width": f"{max(1.0, across(end) - across(onset)):.1f}",
        "target": f"{down(target):.1f}",
        "low": percent(episode.lowest),
    }


def _line(pool: str, first: float, last: float) -> Line:
    """Return the stored on-time share from `first` to `last` (Unix seconds) of a pool, or of all by their requests."""
    sums: dict[int, tuple[float, float]] = {}
    pools = [pool] if pool else None
    for index, values in read_pool_values(COARSE_S, int(first // COARSE_S), int(last // COARSE_S), pools):
        if not math.isnan(values[_SHARE]) and values[_PER_S] > 0:
            met, all_ = sums.get(index, (0.0, 0.0))
            sums[index] = met + values[_SHARE] * values[_PER_S], all_ + values[_PER_S]
    return tuple(((index + 0.5) * COARSE_S, met / all_) for index, (met, all_) in sums.items())


_past_line = lru_cache(maxsize=1024)(_line)
