"""The course of an incident: its own entries, what happened to engines and policies meanwhile, and regions hit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from controlplane.access.audit_search import happened_at, visible_events
from controlplane.fleet.models.engine import Engine
from controlplane.fleet.visibility import visible_pools
from controlplane.incidents.models.incident import Incident
from controlplane.platform.actor import PROGRAM, Actor
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.request_log.decision_search import COUNTED, LONGEST_MS, represented
from controlplane.request_log.models.decision_index import DecisionIndex
from planning.incidents.episodes import CLOSES_AFTER_S, Episode
from planning.incidents.signs import FAILED, REJECTED, Outcomes

EARLY = timedelta(seconds=30)
"""Events this long before the onset are shown: engines are quarantined before requests feel their loss."""
MAX_EVENTS = 60
EVENTS: Mapping[str, tuple[str, str]] = {
    "engine.lost": ("lost", ""),
    "engine.back": ("back", ""),
    "engine.restart": ("restarted", ""),
    "engine.exit": ("exited", ""),
    "engine.quarantine": ("quarantined", "{} is quarantined"),
    "engine.probation": ("returning", "{} gets a growing share of work again, after"),
    "engine.readmit": ("back", "{} gets all of its work again"),
    "engine.drain": ("draining", "{} is drained"),
    "engine.maintain": ("maintenance", "{} is put into maintenance"),
    "engine.ready": ("ready", "{} is returned to service"),
    "policy.publish": ("published", "a policy version is published"),
    "policy.roll_back": ("rolled back", "the policy is rolled back"),
}
"""Verb of an audit event → kind of its entry, and its words with the engine's name; without words, its reason."""
_RETURNS = ("engine.back", "engine.restart", "engine.probation", "engine.readmit", "engine.ready")
"""Verbs after which an engine gets work again; after the other ones of engines it gets none."""


def timeline_of(incident: Incident, shown: Sequence[AuditEvent]) -> list[dict[str, Any]]:
    """Return the entries, and the events of `events_of`, in order of time."""
    entries = [
        {"at": entry.at.isoformat(), "kind": entry.kind, "text": entry.text, "by": entry.by}
        for entry in incident.entries.all()
    ]
    entries.append({"at": incident.onset.isoformat(), "kind": "began", "text": "First symptom.", "by": ""})
    if incident.closed_at is not None and not incident.closed_by:
        # It closes some minutes later, when no symptom has returned.
        entries.append({"at": incident.closed_at.isoformat(), "kind": "ended", "text": "Last symptom.", "by": ""})
    ids = {event.object_id for event in shown if event.object_kind == "engine"}
    names = dict(Engine.objects.filter(engine_id__in=ids).values_list("engine_id", "name")) if ids else {}
    return sorted([*entries, *(_entry(event, names) for event in shown)], key=lambda entry: entry["at"])


def back_since(shown: Sequence[AuditEvent]) -> dict[str, datetime]:
    """Return since when engines that were lost, or got no work, get work again, by engine id."""
    since: dict[str, datetime] = {}
    for event in sorted(shown, key=happened_at):
        if event.object_kind != "engine":
            continue
        if event.verb in _RETURNS:
            since.setdefault(event.object_id, happened_at(event))
        else:
            since.pop(event.object_id, None)
    return since


def events_of(incident: Incident, actor: Actor) -> list[AuditEvent]:
    """Return the visible events of engines and policies from before the onset to after the end."""
    end = (incident.closed_at or timezone.now()) + timedelta(seconds=CLOSES_AFTER_S)
    events = visible_events(actor).filter(at__gte=incident.onset - EARLY, at__lte=end, verb__in=EVENTS)
    if incident.pool:
        events = events.filter(pool_slug__in=("", incident.pool))
    return list(events.order_by("at", "id")[:MAX_EVENTS])


def _entry(event: AuditEvent, names: Mapping[str, str]) -> dict[str, Any]:
    kind, words = EVENTS[event.verb]
    said = words.format(names.get(event.object_id, event.object_id))
    text = ": ".join(part for part in (said, event.why.removeprefix("returning after: ")) if part)
    by = "" if event.via == PROGRAM else event.actor_name
    return {"at": happened_at(event).isoformat(), "kind": kind, "text": text, "by": by}


def regions_of(incident: Incident, episode: Episode, actor: Actor) -> dict[str, Outcomes]:
    """Return the ended requests on time, late, failed and rejected by region; {} if all were in one region.

    They are counted in the request log, sampled ones weighted up.
    """
    if incident.pool:
        return {}
    regions = dict(visible_pools(actor).values_list("slug", "region__name"))
    if len(set(regions.values())) < 2:
        return {}
    begin_ms, end_ms = int(episode.counted_from * 1000), int(episode.counted_to * 1000)
    rows = DecisionIndex.objects.filter(
        at_ms__gte=begin_ms - LONGEST_MS, at_ms__lt=end_ms, ended_ms__gte=begin_ms, ended_ms__lt=end_ms
    ).filter(COUNTED, pool__in=regions)
    counts: dict[str, list[float]] = {}
    for item in rows.order_by().values("pool", "outcome", "late").annotate(count=represented()):
        column = {"failed": FAILED, "rejected": REJECTED}.get(item["outcome"], int(item["late"]))
        counts.setdefault(regions[item["pool"]], [0.0] * 4)[column] += item["count"]
    return {region: (round(a), round(b), round(c), round(d)) for region, (a, b, c, d) in sorted(counts.items())}
