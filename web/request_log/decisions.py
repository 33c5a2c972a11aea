"""The Requests page: recorded decisions, filtered, grouped, sorted, updated live, and exported."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from time import perf_counter, time
from typing import Any
from urllib.parse import urlencode

from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import reverse
from django.views.decorators.http import require_safe

from controlplane.fleet.models.engine import Engine
from controlplane.fleet.visibility import visible_pools
from controlplane.platform.actor import Actor
from controlplane.platform.format import day_time, zone_name
from controlplane.platform.resource.csv_text import csv_of
from controlplane.platform.search_filter import UnreadableFilterError
from controlplane.request_log.api.decisions import RecordedDecisionShape
from controlplane.request_log.decision_search import FAILED, REJECTED, DecisionFilter, search, unix_ms
from controlplane.request_log.decision_story.advice import CAUSE_WORDS
from controlplane.request_log.models.decision_index import DecisionIndex
from gateway.pools.engines.hit_words import CAUSE_TITLES
from web.live.engine_card import REASONS
from web.request_log.decision_rows import ARM_WORDS, MAX_SPAN_MS, SHAPES, Span, lines, strip
from web.request_log.decision_states import states_and_running
from web.request_log.request_views import GROUPS, MAX_ROLLED, SORTS, grouped, list_heads, most, rolled_up
from web.shell.console_request import console_actor, filter_chips, row_number, with_query
from web.shell.frame import shell_context

ADDRESS = "/requests"
PAGE_ROWS = 50
TAP_ROWS = 100
MAX_POOLS = 1000
SHOWN_S = 900
"""Span of the strip in seconds if the filter sets no times."""
LIVE_MS = 7_200_000
"""Longest span in milliseconds that the tap counts again every few seconds; a page with a longer one is a snapshot.

An hour's range begins at a fixed time, and so grows while it is followed.
"""
RANGES = (("15 min", SHOWN_S), ("1 h", 3_600), ("24 h", 86_400))
EXPORTED_ROWS = 10_000
_LABELS = {
    "since": "from",
    "until": "to",
    "ended_since": "ended from",
    "ended_until": "ended before",
    "late": "objective",
    "cause": "regret cause",
    "mismatch": "hit mismatch",
    "ttft_from": "TTFT, s, at least",
    "regret_from": "regret, s, at least",
    "prompt_from": "prompt tokens, at least",
    "prompt_below": "prompt tokens, below",
}
_GROUPINGS = {"": "List", **GROUPS}
_INPUTS = (
    ("engine", "Engine", "e-17", 64),
    ("tenant", "Tenant", "", 64),
    ("session", "Session", "", 200),
    ("ttft_from", "TTFT from, s", "2.5", 12),
    ("regret_from", "Regret from, s", "0.5", 12),
    ("prompt_from", "Prompt from, tok", "16000", 12),
    ("since", "From, UTC", "2026-11-20 03:13", 40),
    ("until", "To, UTC", "2026-11-20 04:00", 40),
)
"""Fields of the filter that are typed: name, label, example, and maximum length."""
_REASONS = sorted(REASONS.items(), key=lambda item: item[1].lower())
_CHOICES = (
    ("reason", "Reason", _REASONS),
    ("arm", "Version group", [*ARM_WORDS.items()]),
    ("cause", "Regret cause", [*CAUSE_WORDS.items()]),
    ("mismatch", "Hit mismatch", [*CAUSE_TITLES.items()]),
)
"""Fields of the filter with a choice, besides the pool: name, label, and values with their words."""
_UNEDITED = ("state", "late", "ended_since", "ended_until", "prompt_below")
"""Conditions that links set and the filter keeps."""
_TIMES = ("since", "until", "ended_since", "ended_until")
_INTERNAL = ("id", "segment", "position")
_NO_STATES: tuple[list[dict[str, Any]], list[dict[str, Any]]] = ([], [])
_WORDS = {"late": {"1": "missed"}, "state": {state: word.lower() for state, (_, word) in SHAPES.items()}}


@require_safe
def decisions(request: HttpRequest) -> HttpResponse:
    """Show a page of decisions below the strip of their rate; a search for one id redirects to that decision."""
    begin_s, actor = perf_counter(), console_actor(request)
    wanted = DecisionFilter.of(request.GET)
    problem, rows, older, shown, states, running = "", [], "", None, *_NO_STATES
    table, given, group, sort = None, wanted.given, _choice(request, "group", GROUPS), _choice(request, "sort", SORTS)
    live = not (wanted.until or sort or group or "before" in request.GET)
    # Before the rows, so that the tap brings what is stored while they are read.
    newest = DecisionIndex.objects.order_by("-pk").values_list("pk", flat=True).first() or 0
    try:
        matches = search(actor, wanted)
        if wanted.id and (one := _only(matches)):
            return HttpResponseRedirect(reverse("decision", args=[one]))
        span = span_of(wanted, time())
        live = live and span.end_ms - span.begin_ms <= LIVE_MS
        if group:
            table = grouped(matches, span, group, request.GET.get("sort", ""), given)
        elif sort:
            rows = lines(most(matches, span, sort, PAGE_ROWS))
        else:
            rows, older = _page(matches, wanted, request.GET)
        shown = strip(matches, span, int(time() * 1000)) | {
            "ranges": _ranges(wanted, span),
            "cut": _is_cut(wanted, span),
        }
        states, running = states_and_running(actor, wanted, span, ADDRESS, live=live)
    except UnreadableFilterError as error:
        problem = str(error)
    slugs = visible_pools(actor).order_by("slug").values_list("slug", flat=True)[:MAX_POOLS]
    fields = (("pool", "Pool", [(slug, slug) for slug in slugs]), *_CHOICES)
    context = shell_context(
        request,
        page="Requests",
        filter=wanted,
        rows=rows,
        table=table,
        heads=list_heads(sort, given),
        groups=[(words, with_query(ADDRESS, **given, group=name), name == group) for name, words in _GROUPINGS.items()],
        group=group,
        sort=sort,
        exports=urlencode(given),
        strip=shown,
        states=states,
        running=running,
        chips=_chips(wanted),
        problem=problem,
        unknown_engine=bool(wanted.engine) and not rows and not problem and not _known_engine(actor, wanted.engine),
        older=older,
        newest=newest,
        live=live and not problem,
        tap=f"{ADDRESS}/tap?{urlencode(wanted.given)}",
        choices=[(name, label, getattr(wanted, name), options) for name, label, options in fields],
        inputs=[(name, label, getattr(wanted, name), *rest) for name, label, *rest in _INPUTS],
        kept_fields=[(name, given[name]) for name in _UNEDITED if name in given],
        kept=newest > 0,
        took_ms=f"{(perf_counter() - begin_s) * 1000:.0f}",
    )
    return render(request, "request_log/decisions.html", context, status=400 if problem else 200)


@require_safe
def decisions_tap(request: HttpRequest) -> HttpResponse:
    """Return the rows stored after a given row, newest first, as table lines; with `strip` also the strip."""
    after = row_number(request.GET.get("after"), 18)
    if after is None:
        return JsonResponse({"error": "after must be the number of a row."}, status=400)
    wanted, actor = DecisionFilter.of(request.GET), console_actor(request)
    try:
        matches = search(actor, wanted)
        fresh = list(matches.filter(pk__gt=after).order_by("-pk")[:TAP_ROWS])
        shown, states, running = None, *_NO_STATES
        if "strip" in request.GET:
            span = span_of(wanted, time())
            shown = strip(matches, span, int(time() * 1000))
            states, running = states_and_running(actor, wanted, span, ADDRESS)
    except UnreadableFilterError as error:
        return JsonResponse({"error": str(error)}, status=400)
    # They were read in the order of storing; the table is in that of arrival.
    fresh.sort(key=lambda row: (-row.at_ms, -row.pk))
    return JsonResponse(
        {
            "after": max((row.pk for row in fresh), default=after),
            "count": len(fresh),
            "rows": render_to_string("request_log/decision_lines.html", {"rows": lines(fresh)}),
            "title": shown["title"] if shown else "",
            "strip": render_to_string("request_log/decision_strip.html", {"strip": shown}) if shown else "",
            "states": render_to_string("request_log/decision_states.html", {"states": states}) if states else "",
            "running": render_to_string("request_log/running_lines.html", {"running": running}),
        }
    )


def span_of(wanted: DecisionFilter, now: float) -> Span:
    """Return the strip's span: between the filter's times, at most one day; by default the last SHOWN_S seconds.

    It ends now if the filter ends later.
    """
    since, until = wanted.since or wanted.ended_since, wanted.until or wanted.ended_until
    now_ms = int(now) * 1000 + 1000
    end_ms = unix_ms("until", until) if until else now_ms
    begin_ms = unix_ms("since", since) if since else end_ms - SHOWN_S * 1000
    if begin_ms >= end_ms:
        raise UnreadableFilterError("From is not before To; swap them, or clear one.")
    if begin_ms < now_ms:
        end_ms = min(end_ms, now_ms)
    return Span(max(begin_ms, end_ms - MAX_SPAN_MS), end_ms)


def _ranges(wanted: DecisionFilter, span: Span) -> list[tuple[str, str, bool]]:
    """Return (words, address, chosen) of the usual ranges up to now; the shortest is the page without times."""
    given = {name: text for name, text in wanted.given.items() if name not in _TIMES}
    shown_s, now = (span.end_ms - span.begin_ms) // 1000, int(time())
    rows = []
    for words, seconds in RANGES:
        since = {} if seconds == SHOWN_S else {"since": str(now - seconds)}
        is_shown = abs(shown_s - seconds) <= seconds // 20 and not (wanted.until or wanted.ended_until)
        rows.append((words, with_query(ADDRESS, **given, **since), is_shown))
    return rows


def _is_cut(wanted: DecisionFilter, span: Span) -> bool:
    """Return whether the filter begins before the span."""
    since = wanted.since or wanted.ended_since
    return bool(since) and unix_ms("since", since) < span.begin_ms


def _choice(request: HttpRequest, name: str, known: Mapping[str, str]) -> str:
    """Return a parameter that names one of the known choices; empty otherwise."""
    text = request.GET.get(name, "")
    return text if text in known else ""


def _chips(wanted: DecisionFilter) -> list[dict[str, str]]:
    given = wanted.given
    words = {name: texts.get(given[name], given[name]) for name, texts in _WORDS.items() if name in given}
    words |= {name: _time_words(name, given[name]) for name in _TIMES if name in given}
    return filter_chips(ADDRESS, given, _LABELS, words)


def _time_words(name: str, text: str) -> str:
    """Return a time of the filter as date and time; an unreadable one as it is."""
    try:
        at = datetime.fromtimestamp(unix_ms(name, text) / 1000, UTC)
    except (UnreadableFilterError, ValueError, OverflowError):
        return text
    return f"{day_time(at, 'seconds')} {zone_name()}"


@require_safe
def export(request: HttpRequest, form: str) -> HttpResponse:
    """Send the newest EXPORTED_ROWS matching requests as CSV or JSON."""
    try:
        rows = search(console_actor(request), DecisionFilter.of(request.GET))[:EXPORTED_ROWS]
    except UnreadableFilterError as error:
        return HttpResponse(str(error), status=400, content_type="text/plain; charset=utf-8")
    headers = {"Content-Disposition": f'attachment; filename="requests.{form}"'}
    if form == "json":
        shown = RecordedDecisionShape(rows, many=True).data
        return JsonResponse({"limit": EXPORTED_ROWS, "requests": list(shown)}, headers=headers)
    fields = {item.name: item for item in DecisionIndex._meta.concrete_fields if item.name not in _INTERNAL}
    return HttpResponse(csv_of(rows, fields), content_type="text/csv; charset=utf-8", headers=headers)


def _only(rows: QuerySet[DecisionIndex]) -> str:
    """Return the id of the only matching decision; empty if none or several match."""
    names = list(rows.values_list("decision_id", flat=True)[:2])
    return names[0] if len(names) == 1 else ""


def _known_engine(actor: Actor, name: str) -> bool:
    """Return whether a pool that the actor can see has an engine with this name or id."""
    engines = Engine.objects.filter(pool__in=visible_pools(actor))
    return engines.filter(Q(name=name) | Q(engine_id=name)).exists()


def _page(
    matches: QuerySet[DecisionIndex], wanted: DecisionFilter, query: Mapping[str, str]
) -> tuple[list[dict[str, Any]], str]:
    """Return the lines of one page and the URL of older rows. Equal rows share a line, unless `each` is set."""
    at, _, pk = query.get("before", "").partition(".")
    if at.isdecimal() and pk.isdecimal() and len(at) < 20 and len(pk) < 20:
        matches = matches.filter(Q(at_ms__lt=int(at)) | Q(at_ms=int(at), pk__lt=int(pk)))
    limit = PAGE_ROWS if "each" in query or wanted.state not in ("", FAILED, REJECTED) else MAX_ROLLED
    near = list(matches[: limit + 1])
    unrolled = {"each": "1"} if "each" in query else {}
    shown = near[:limit]
    rolled = lines(shown) if unrolled else rolled_up(shown, lines, wanted.given)
    page = rolled[:PAGE_ROWS]
    count = sum(line.get("times", 1) for line in page)
    if count >= len(near):
        return page, ""
    last = near[count - 1]
    return page, with_query(ADDRESS, **wanted.given, **unrolled, before=f"{last.at_ms}.{last.pk}")
