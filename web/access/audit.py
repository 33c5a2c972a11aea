"""The Audit page: who changed what, when, and why."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from itertools import groupby
from time import perf_counter
from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from controlplane.access.audit_search import (
    EXPORT_LIMIT,
    NAMED_KINDS,
    AuditFilter,
    exported,
    happened_at,
    search,
    visible_events,
)
from controlplane.fleet.visibility import visible_pools
from controlplane.platform.actor import PROGRAM, Actor
from controlplane.platform.format import clock_time, date_time, moment, some_names
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.search_filter import UnreadableFilterError
from controlplane.policies.document.diff import DiffRun, diff_runs
from controlplane.policies.document.schema import ABSENT
from web.shell.console_request import console_actor, filter_chips, row_number, with_query
from web.shell.frame import shell_context

ADDRESS = "/audit"
PAGE_ROWS = 50
COUNT_LIMIT = 10_000
MAX_POOLS = 1000
_BY = (
    ("main", "People and key events"),
    ("people", "People"),
    ("programs", "Programs"),
    ("all", "Also automatic"),
)
_LABELS = {"request": "request id", "since": "from", "until": "to"}


@require_safe
def audit(request: HttpRequest) -> HttpResponse:
    """Show one page of audit events, and the selected event with its values before and after the change.

    Without a filter, changes by people and key events are listed: programs record many more.
    """
    now, begin_s = timezone.now(), perf_counter()
    actor, wanted = console_actor(request), AuditFilter.of(request.GET)
    wanted = wanted if wanted.given else replace(wanted, by="main")
    problem, events, older, newer, total = "", [], None, None, 0
    try:
        matches = search(actor, wanted)
        # Up to a limit: PostgreSQL would read every row that matches.
        total = matches[: COUNT_LIMIT + 1].count()
        events, newer, older = _page(matches, request.GET)
    except UnreadableFilterError as error:
        problem = str(error)
    took_s = perf_counter() - begin_s
    context = shell_context(
        request,
        page="Audit",
        kept_days=settings.AUDIT_RETENTION_DAYS,
        rows=_rows(events, now, wanted),
        shown=len(events),
        filter=wanted,
        chips=[chip for chip in filter_chips(ADDRESS, wanted.given, _LABELS) if chip["name"] != "by"],
        picks=[
            (words, with_query(ADDRESS, **{**wanted.given, "by": by}), by == (wanted.by or "all")) for by, words in _BY
        ],
        pools=list(visible_pools(actor).order_by("slug").values_list("slug", flat=True)[:MAX_POOLS]),
        problem=problem,
        total=total,
        more_than=total > COUNT_LIMIT and COUNT_LIMIT,
        took_ms=f"{took_s * 1000:.0f}",
        newer=with_query(ADDRESS, **wanted.given, after=newer) if newer else "",
        older=with_query(ADDRESS, **wanted.given, before=older) if older else "",
        download=f"{ADDRESS}/events.json?{urlencode(wanted.given)}",
        opened=_opened(actor, request.GET.get("event", ""), now, wanted),
    )
    return render(request, "access/audit.html", context, status=400 if problem else 200)


@require_safe
def audit_download(request: HttpRequest) -> HttpResponse:
    """Return the newest EXPORT_LIMIT events that match the filter as a JSON file."""
    wanted = AuditFilter.of(request.GET)
    try:
        events = list(search(console_actor(request), wanted)[: EXPORT_LIMIT + 1])
    except UnreadableFilterError as error:
        return JsonResponse({"error": str(error)}, status=400)
    document = {
        "exported_at": timezone.now().isoformat(),
        "filter": wanted.given,
        "truncated": len(events) > EXPORT_LIMIT,
        "events": [exported(event) for event in events[:EXPORT_LIMIT]],
    }
    answer = JsonResponse(document)
    answer["Content-Disposition"] = 'attachment; filename="headway-audit.json"'
    return answer


def _page(rows: QuerySet[AuditEvent], asked: Any) -> tuple[list[AuditEvent], int | None, int | None]:
    """Return the events of one page, and the first event ids of the newer and the older page."""
    before, after = _event_at(asked.get("before")), _event_at(asked.get("after"))
    if after is not None:
        later = Q(at__gt=after.at) | Q(at=after.at, pk__gt=after.pk)
        near = list(rows.filter(later).order_by("at", "id")[: PAGE_ROWS + 1])
        events = near[:PAGE_ROWS][::-1]
        return events, events[0].pk if len(near) > PAGE_ROWS else None, events[-1].pk if events else None
    if before is not None:
        rows = rows.filter(Q(at__lt=before.at) | Q(at=before.at, pk__lt=before.pk))
    near = list(rows[: PAGE_ROWS + 1])
    events = near[:PAGE_ROWS]
    more = len(near) > PAGE_ROWS
    return events, events[0].pk if before is not None and events else None, events[-1].pk if more else None


def _event_at(text: str | None) -> AuditEvent | None:
    """Return the event at which a page begins. Only its time and id are read, so the actor needs no access to it."""
    number = row_number(text)
    return None if number is None else AuditEvent.objects.only("at", "pk").filter(pk=number).first()


def _opened(actor: Actor, text: str, now: datetime, wanted: AuditFilter) -> dict[str, Any] | None:
    number = row_number(text)
    event = None if number is None else visible_events(actor).filter(pk=number).first()
    if event is None:
        return None
    return {
        **_row(event, now, wanted),
        "exact": date_time(happened_at(event), "milliseconds"),
        "recorded": clock_time(event.at) if happened_at(event) != event.at else "",
        "runs": _runs(event),
        "json": json.dumps(exported(event), indent=2),
        "close": with_query(ADDRESS, **wanted.given),
    }


def _runs(event: AuditEvent) -> tuple[DiffRun, ...]:
    """Return the diff between the values before and after the event; empty if the event has no values."""
    if event.before is None and event.after is None:
        return ()
    return diff_runs(*(ABSENT if item is None else item for item in (event.before, event.after)))


def _rows(events: Iterable[AuditEvent], now: datetime, wanted: AuditFilter) -> list[dict[str, Any]]:
    """Return one row per event; consecutive equal changes by a program share one row."""
    rows = []
    # A page is cut by the time of recording; losses and restarts of engines happened a little earlier.
    for _, group in groupby(sorted(events, key=happened_at, reverse=True), _sameness):
        alike = list(group)
        names = list(dict.fromkeys(map(_name, reversed(alike))))
        row = {**_row(alike[0], now, wanted), "times": len(alike), "first": moment(happened_at(alike[-1]), now)}
        rows.append({**row, "object": some_names(names, 3), "ids": {event.pk for event in alike}})
    return rows


def _sameness(event: AuditEvent) -> tuple[object, ...]:
    if event.via != PROGRAM:
        return (event.pk,)
    return (event.actor_name, event.verb, event.object_kind, event.pool_slug)


def _row(event: AuditEvent, now: datetime, wanted: AuditFilter) -> dict[str, Any]:
    return {
        "event": event,
        "at": moment(happened_at(event), now),
        "kind": event.object_kind.replace("_", " "),
        "object": _name(event),
        "open": with_query(ADDRESS, **wanted.given, event=event.pk),
        "by_person": with_query(ADDRESS, person=event.actor_name),
        "by_object": with_query(ADDRESS, object=f"{event.object_kind}:{event.object_id}"),
        "by_request": with_query(ADDRESS, request=event.request_id),
    }


def _name(event: AuditEvent) -> str:
    """Return the object's name, or its id if the event records no name."""
    for values in (event.after, event.before):
        if isinstance(values, dict) and isinstance(values.get("name"), str) and event.object_kind in NAMED_KINDS:
            return str(values["name"])
    return event.object_id
