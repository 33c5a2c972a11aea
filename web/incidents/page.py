"""The page of one incident; with `?fragment` only the part that changes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, urlencode

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from controlplane.fleet.models.pool import Pool
from controlplane.incidents import handling, words
from controlplane.incidents.models.incident import Incident, IncidentEntryKind, IncidentState
from controlplane.incidents.notices import episode_of
from controlplane.incidents.report import TABLES, burn_words, length_label, markdown_of, report_of
from controlplane.incidents.rules import RULES
from controlplane.notifications.changing import silence_incident
from controlplane.objectives.objective import target_of
from controlplane.platform.actor import Actor
from controlplane.platform.conflict import ConflictError
from controlplane.platform.field_problems import InvalidFieldsError, problem
from controlplane.platform.format import clock_time, duration, iso, percent, span
from controlplane.platform.models.api_key import ApiKey
from controlplane.platform.role import Role
from controlplane.platform.roles import may
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.request_log.recordings.lifecycle import NoRoomError, delete_recording, record_window
from controlplane.trials.models.whatif import WhatIf
from controlplane.trials.whatif.conditions import Conditions
from controlplane.trials.whatif.lifecycle import TooManyWaitError, start_whatif
from planning.incidents.episodes import CLOSES_AFTER_S, Episode
from web.history.past_range import RANGES
from web.incidents.picture import incident_picture
from web.live.scope import scope_of
from web.notifications.page import notified
from web.shell.console_request import asked, console_actor, go, sent, why
from web.shell.frame import shell_context
from web.shell.rejection import FormRejection, attempted

PAGE = "Incidents"
LONGEST_WHATIF = timedelta(minutes=15)
SAID = {
    "acknowledged": "Acknowledged.",
    "closed": "Closed. While its trouble lasts, it opens no other incident.",
    "noted": "Note added.",
    "silenced": "Silenced for 30 min. The incident stays open.",
    "nothing": "Another person has already done that.",
}


@require_safe
def incident(request: HttpRequest, number: int) -> HttpResponse:
    """Show one incident."""
    return _page(request, _visible(request, number))


@require_safe
def incident_export(request: HttpRequest, number: int, form: str) -> HttpResponse:
    """Download the report as Markdown or JSON."""
    report = report_of(_visible(request, number), console_actor(request))
    answer: HttpResponse
    if form == "json":
        answer = JsonResponse(report, json_dumps_params={"indent": 2, "ensure_ascii": False})
    else:
        answer = HttpResponse(markdown_of(report), content_type="text/markdown; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="incident-{number}.{form}"'
    return answer


@require_POST
def handle_incident(request: HttpRequest, number: int, act: str) -> HttpResponse:
    """Acknowledge, close, note, or try another version on the window."""
    shown, actor = _visible(request, number), console_actor(request)
    if act not in _ACTS:
        raise Http404
    done = attempted(lambda: _ACTS[act](shown, actor, request), ConflictError, NoRoomError, TooManyWaitError)
    if isinstance(done, FormRejection):
        return _page(request, shown, problem=done.words, status=done.status)
    if isinstance(done, WhatIf):
        return go(reverse("whatif", args=[done.pk]))
    return go(reverse("incident", args=[number]), said=done)


def _acknowledge(shown: Incident, actor: Actor, request: HttpRequest) -> str:
    return "acknowledged" if handling.acknowledge(shown, actor=actor, why=why(request)) else "nothing"


def _close(shown: Incident, actor: Actor, request: HttpRequest) -> str:
    return "closed" if handling.close(shown, actor=actor, why=why(request)) else "nothing"


def _silence(shown: Incident, actor: Actor, request: HttpRequest) -> str:
    silence_incident(shown, actor=actor, why=why(request))
    return "silenced"


def _note(shown: Incident, actor: Actor, request: HttpRequest) -> str:
    handling.add_note(shown, sent(request, "text", 1000), actor=actor)
    return "noted"


def _whatif(shown: Incident, actor: Actor, request: HttpRequest) -> WhatIf:
    """Start a what-if of another version on the traffic of the incident."""
    pool = handling.pool_of(shown)
    tried = _other_version(pool) if pool is not None else None
    if pool is None or tried is None:
        raise problem("draft", "Needs a second policy version of one pool to compare with; save a draft first.")
    end = min(shown.closed_at or timezone.now(), shown.onset + LONGEST_WHATIF)
    recording = record_window(pool, shown.onset, end, actor=actor, name=f"Incident {shown.pk}")
    try:
        return start_whatif(recording, tried, None, Conditions(), actor=actor, why=f"incident {shown.pk}")
    except (InvalidFieldsError, TooManyWaitError):
        delete_recording(recording, actor=actor, why="the what-if could not be started")
        raise


_ACTS: dict[str, Callable[[Incident, Actor, HttpRequest], Any]] = {
    "acknowledge": _acknowledge,
    "close": _close,
    "note": _note,
    "silence": _silence,
    "whatif": _whatif,
}


def _visible(request: HttpRequest, number: int) -> Incident:
    return get_object_or_404(handling.visible_incidents(console_actor(request)), pk=number)


def _other_version(pool: Pool) -> PolicyVersion | None:
    """Return the version to try: the one that was live before, else the newest other one."""
    live = pool.policy.live_version
    others = PolicyVersion.objects.filter(policy=pool.policy).exclude(pk=live.pk if live else None).order_by("-number")
    before = others.filter(number__lt=live.number).first() if live is not None else None
    return before or others.first()


def _page(request: HttpRequest, shown: Incident, *, problem: str = "", status: int = 200) -> HttpResponse:
    actor, now = console_actor(request), timezone.now()
    episode, report, pool = episode_of(shown), report_of(shown, actor), handling.pool_of(shown)
    for row in report["lengths"]:
        row["label"] = length_label(row["name"])
    for row in (*report["tenants"], *report["regions"]):
        row["label"] = row["name"] or "others"
    address = _decisions_address(shown)
    for table, row in ((name, row) for _, name, _ in TABLES for row in report[name]):
        row["burn"] = burn_words(row["burn"])
        of = f"{address}&tenant={quote(row['name'])}&state=" if table == "tenants" and row["name"] else ""
        row["counts"] = [(row[state], of and row[state] and of + state) for state in ("late", "failed", "rejected")]
    context = shell_context(
        request,
        page=PAGE,
        incident=shown,
        report=report,
        problem=problem,
        lasted=span(((shown.closed_at or now) - shown.onset).total_seconds()),
        steps=_steps(shown, episode, now),
        tables=[(title, name, head, report[name]) for title, name, head in TABLES if report[name] or name != "regions"],
        timeline=[{**entry, "at": datetime.fromisoformat(entry["at"])} for entry in report["timeline"]],
        rules=_rules(episode),
        changes=[{**change, "at": datetime.fromisoformat(change["at"])} for change in report["changes"]],
        picture=_picture(shown, actor, now),
        may_act=may(actor, Role.OPERATOR, pool) and (pool is not None or not shown.pool),
        notified=notified(shown.pk),
        acts=_acts(episode, pool, report),
        tried=_other_version(pool) if pool is not None else None,
        decisions=address,
        counted_since=episode.counted_from,
        fleet=_fleet_address(shown, now),
        recording=_recording_address(shown, now) if pool is not None and may(actor, Role.OPERATOR, pool) else "",
        fragment=f"{reverse('incident', args=[shown.pk])}?fragment=1",
        said=SAID.get(asked(request, "said"), ""),
    )
    name = "incidents/live.html" if "fragment" in request.GET else "incidents/page.html"
    return render(request, name, context, status=status)


_LABELS = {
    "quarantine": "Quarantine {}",
    "limit": "Limit a key of {}",
    "roll-back": "Roll back",
    "capacity": "Open capacity",
}


def _steps(shown: Incident, episode: Episode, now: datetime) -> list[dict[str, Any]]:
    """Return the steps open, recovering, closed: which one is reached, and when."""
    is_closed = shown.state == IncidentState.CLOSED
    late = duration((shown.opened_at - shown.onset).total_seconds())
    opened = f"began {clock_time(shown.onset)}; opened {clock_time(shown.opened_at)}, {late} later"
    if shown.acknowledged_at is not None:
        opened += f"; acknowledged {clock_time(shown.acknowledged_at)} by {shown.acknowledged_by}"
    better = f"lowest {percent(episode.lowest)} on time" if is_closed else f"now {percent(episode.on_time)} on time"
    minutes = f"{CLOSES_AFTER_S / 60:.0f} min"
    if shown.closed_at is not None and shown.closed_by:
        ended = f"{clock_time(shown.closed_at)}, by {shown.closed_by}"
    elif shown.closed_at is not None:
        entry = shown.entries.filter(kind=IncidentEntryKind.CLOSED).last()
        by_itself = f"; closed by itself {clock_time(entry.at)}" if entry is not None else ""
        ended = f"last symptom {clock_time(shown.closed_at)}{by_itself}"
    elif episode.present:
        ended = f"by a person, or after {minutes} without a symptom"
    else:
        ended = f"quiet for {duration((now - shown.last_bad_at).total_seconds())} of {minutes}"
    reached = 2 if is_closed else 0 if episode.present else 1
    texts = (("Open", opened), ("Recovering", better), ("Closed", ended))
    return [
        {"name": name, "text": text, "number": number + 1, "reached": number <= reached, "now": number == reached}
        for number, (name, text) in enumerate(texts)
    ]


def _acts(episode: Episode, pool: Pool | None, report: dict[str, Any]) -> list[dict[str, str]]:
    """Return the advised buttons: each cause's verb, with the effect, and the page that asks to confirm it."""
    shown: dict[str, dict[str, str]] = {}
    labels = {""}
    cures = {(item["kind"], item["subject"]): item["cure"] for item in report["causes"]}
    for cause in episode.causes[:3]:
        about = words.CAUSES[cause.kind]
        address = _ADDRESSES[about.act](cause.subject, pool, report) if about.act else ""
        label = _LABELS[about.act].format(cause.name) if about.act else ""
        # After its end, an incident has cures but no urgent buttons.
        if label in labels or episode.closed is not None:
            label = address = ""
        labels.add(label)
        cure = cures[cause.kind, cause.subject]
        shown.setdefault(cure, {"label": label, "cure": cure, "address": address})
    return list(shown.values())


def _rules(episode: Episode) -> list[dict[str, Any]]:
    """Return the rules that this incident has in it, oldest first, and whether each is firing."""
    titles = {rule.symptom: rule.title for rule in RULES}
    return [
        {
            "title": f"{titles.get(item.kind, item.kind)} {item.name}".strip(),
            "since": datetime.fromtimestamp(item.since, UTC),
            "firing": item.identity in episode.present,
        }
        for item in sorted(episode.symptoms, key=lambda item: item.since)
    ]


def _fleet_address(shown: Incident, now: datetime) -> str:
    """Return the past view of Fleet that ends with the incident, in the shortest range that begins before it."""
    end = int((shown.closed_at or now).timestamp()) + 30
    span_s = end - shown.onset.timestamp()
    name = next((name for name, item in RANGES.items() if item.span_s >= span_s + 60), "24h")
    return f"/?pool={shown.pool}&end={end}&range={name}"


def _key_address(tenant: str, _pool: Pool | None, report: dict[str, Any]) -> str:
    known = set(ApiKey.objects.filter(tenant__slug=tenant).values_list("key_id", flat=True))
    key = next(
        (row["name"] for row in sorted(report["keys"], key=lambda row: -row["requests"]) if row["name"] in known), ""
    )
    return f"{reverse('access-keys')}?key={key}" if key else f"{reverse('access-keys')}?tenant={tenant}"


def _roll_back_address(_subject: str, pool: Pool | None, _report: dict[str, Any]) -> str:
    before = _other_version(pool) if pool is not None else None
    if pool is None or before is None:
        return ""
    return f"{reverse('policy', args=[pool.policy.slug])}?ask=roll-back&version={before.number}"


def _quarantine_address(engine_id: str, pool: Pool | None, _report: dict[str, Any]) -> str:
    return (
        f"{reverse('automation-pool', args=[pool.slug])}?do=quarantine&engine={engine_id}" if pool is not None else ""
    )


_ADDRESSES: dict[str, Callable[[str, Pool | None, dict[str, Any]], str]] = {
    "limit": _key_address,
    "roll-back": _roll_back_address,
    "quarantine": _quarantine_address,
    "capacity": lambda _subject, _pool, _report: reverse("capacity"),
}


def _picture(shown: Incident, actor: Actor, now: datetime) -> Any:
    scope = frozenset({shown.pool}) if shown.pool else scope_of(actor)
    marks = [(shown.onset.timestamp(), "onset"), (shown.opened_at.timestamp(), "opened")]
    if shown.closed_at is not None and not shown.closed_by:
        marks.append((shown.closed_at.timestamp(), "last symptom"))
    marks += [(item.at.timestamp(), item.kind) for item in shown.entries.filter(kind__in=("acknowledged", "closed"))]
    end, target = shown.closed_at or now, target_of(shown.pool)
    return incident_picture(shown.onset.timestamp(), end.timestamp(), now.timestamp(), marks, scope, target)


def _recording_address(shown: Incident, now: datetime) -> str:
    """Return the address of the form that keeps the incident's traffic."""
    window = {"begins_at": iso(shown.onset.timestamp()), "ends_at": iso((shown.closed_at or now).timestamp())}
    fields = {"new": "window", "pool": shown.pool, **window, "name": f"Incident {shown.pk}"}
    return f"{reverse('recordings')}?{urlencode(fields)}"


def _decisions_address(shown: Incident) -> str:
    pool = f"&pool={shown.pool}" if shown.pool else ""
    episode = episode_of(shown)
    return f"/requests?ended_since={episode.counted_from:.3f}&ended_until={episode.counted_to:.3f}{pool}"
