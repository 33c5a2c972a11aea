"""One incident as a report: what the API, the page, and the export show."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from controlplane.access.audit_search import visible_events
from controlplane.incidents import words
from controlplane.incidents.course import back_since, events_of, regions_of, timeline_of
from controlplane.incidents.models.incident import Incident, IncidentState
from controlplane.incidents.notices import episode_of
from controlplane.objectives.objective import target_of
from controlplane.platform.actor import PROGRAM, Actor
from controlplane.platform.format import UNKNOWN, percent, sentence
from controlplane.platform.models.api_key import ApiKey
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.role import Role
from controlplane.platform.roles import may
from gateway.contracts.outcomes import LENGTHS, OTHERS, UNREAD
from planning.incidents import causes
from planning.incidents.episodes import Episode
from planning.incidents.scene import CHANGE_S
from planning.incidents.signs import (
    ALL,
    FAILED,
    LATE,
    NONE,
    REJECTED,
    Outcomes,
    Table,
    missed,
    on_time_share,
    requests,
)
from routing.values.counted import count

BEFORE = timedelta(hours=1)
MAX_CHANGES = 40
MAX_ROWS = 12
NO_CLASS = "none or others"
"""Label of requests without an SLO class, and of those whose class no row names."""
TABLES = (
    ("Regions", "regions", "Region"),
    ("Tenants", "tenants", "Tenant"),
    ("API keys", "keys", "Key"),
    ("SLO classes", "classes", "SLO class"),
    ("Prompt lengths", "lengths", "Prompt tokens"),
)
"""Title, dimension, and first column of each table of requests hit."""
_OWN = ("incident.", "audit.")
_OF_CAUSES = {
    causes.POLICY: ("policy.publish", "policy.roll_back"),
    causes.SCALED_DOWN: ("engine.drain", "engine.maintain", "engine.delete", "engine.sleep"),
    causes.CRASHED: ("engine.exit", "engine.restart", "engine.lost"),
    causes.FROZEN: ("engine.lost",),
    causes.LOST: ("engine.lost",),
    causes.NODE: ("kv_node.silent",),
    causes.CANARY: ("canary.abort",),
}
"""Cause → verbs of the audit events that show it."""


def report_of(incident: Incident, actor: Actor) -> dict[str, Any]:
    """Return the report as JSON values, with what the actor may see of other objects."""
    episode = episode_of(incident)
    hit, events = words.all_hit(episode), events_of(incident, actor)
    back = back_since(events)
    names, target = _key_names(episode, actor), target_of(incident.pool)
    rows = {name: _rows(episode, name, target) for name in ("tenants", "keys", "lengths", "classes")}
    return {
        "number": incident.pk,
        "title": incident.title,
        "state": incident.state,
        "pool": incident.pool,
        "onset": incident.onset.isoformat(),
        "opened_at": incident.opened_at.isoformat(),
        "last_bad_at": incident.last_bad_at.isoformat(),
        "closed_at": incident.closed_at.isoformat() if incident.closed_at else None,
        "acknowledged_by": incident.acknowledged_by,
        "wrong": _wrong(episode, target),
        "why": words.why(episode),
        "cure": words.cure(episode, back),
        "certain": episode.certain,
        "on_time": episode.on_time,
        "lowest": episode.lowest,
        "causes": [
            {
                "kind": item.kind,
                "subject": item.subject,
                "finding": words.CAUSES[item.kind].finding(item),
                "evidence": words.CAUSES[item.kind].evidence(item),
                "confidence": round(item.score, 2),
                "cure": words.cure_of(item, back),
            }
            for item in episode.causes
        ],
        "hit": _counts(hit),
        "regions": [_row(name, counts, {}, target) for name, counts in regions_of(incident, episode, actor).items()],
        "tenants": rows["tenants"],
        "keys": [{**row, "label": names.get(row["name"], row["name"] or "others")} for row in rows["keys"]],
        "lengths": sorted(rows["lengths"], key=lambda row: _length_order(row["name"])),
        "classes": [{**row, "label": row["name"] or NO_CLASS} for row in rows["classes"]],
        "changes": changes_before(incident, episode, actor),
        "timeline": timeline_of(incident, events),
    }


def _wrong(episode: Episode, target: float) -> str:
    """Return the requests hit, and the fall of the on-time share."""
    hit, low = words.all_hit(episode), episode.lowest
    missed_words = "No request missed the objective."
    if missed(hit):
        missed_words = sentence(words.outcome_words(hit))
    elif requests(hit):
        missed_words = f"None of {count(requests(hit), 'request')} missed the objective."
    usual = on_time_share(episode.before.get(ALL, {}).get("", NONE))
    if low is None:
        return missed_words
    if usual is not None and (low >= usual or percent(usual) == percent(low)):
        return f"{missed_words} The on-time share stayed at {percent(low)}; the target is {percent(target)}."
    fall = f"from {percent(usual)} " if usual is not None else ""
    return f"{missed_words} The on-time share fell {fall}to {percent(low)}; the target is {percent(target)}."


def changes_before(incident: Incident, episode: Episode, actor: Actor) -> list[dict[str, Any]]:
    """Return the visible changes of the hour before the onset, nearest first, each with a verdict: cause or not."""
    # The gateway applies a change a moment after the audit has it; clocks differ a little.
    until = incident.onset + timedelta(seconds=10)
    events = visible_events(actor).filter(at__gte=incident.onset - BEFORE, at__lt=until).order_by("-at", "-id")
    matches = [event for event in events[: 4 * MAX_CHANGES] if _is_shown(event)][:MAX_CHANGES]
    return [
        {
            "at": event.at.isoformat(),
            "before_s": max(0, round((incident.onset - event.at).total_seconds())),
            "verb": event.verb,
            "kind": event.object_kind.replace("_", " "),
            "object": _object_name(event),
            "by": event.actor_name,
            "why": event.why,
            "verdict": _verdict(event, incident, episode),
        }
        for event in matches
    ]


def _is_shown(event: AuditEvent) -> bool:
    """Return whether a person or key made the change, or it is one that can be a cause: jobs record many others."""
    if event.verb.startswith(_OWN):
        return False
    return event.via != PROGRAM or any(event.verb in verbs for verbs in _OF_CAUSES.values())


def _verdict(event: AuditEvent, incident: Incident, episode: Episode) -> str:
    """Return cause, likely, unlikely, or no for one change."""
    first = episode.causes[0] if episode.causes else None
    shown_by = [item for item in episode.causes if event.verb in _OF_CAUSES.get(item.kind, ())]
    near = incident.onset - event.at <= timedelta(seconds=CHANGE_S)
    if shown_by and near:
        same = event.object_kind != "engine" or event.object_id in ("", shown_by[0].subject)
        if shown_by[0] is first and episode.certain and same:
            return "cause"
        return "likely" if not episode.certain else "unlikely"
    if event.pool_slug and incident.pool and event.pool_slug != incident.pool:
        return "no"
    return "unlikely"


def _object_name(event: AuditEvent) -> str:
    for values in (event.after, event.before):
        if isinstance(values, dict) and isinstance(values.get("name"), str):
            return str(values["name"])
    return event.object_id


def _key_names(episode: Episode, actor: Actor) -> dict[str, str]:
    if not may(actor, Role.VIEWER):
        return {}
    keys = ApiKey.objects.filter(key_id__in=list(episode.hit.get("keys", {})))
    return {key.key_id: f"{key.name} ({key.prefix}…)" for key in keys}


def _rows(episode: Episode, dimension: str, target: float) -> list[dict[str, Any]]:
    """Return the rows of one dimension with the most missed requests; further ones are together in the last row."""
    hit, before = episode.hit.get(dimension, {}), episode.before.get(dimension, {})
    ranked = sorted(
        (row for row in hit if row != OTHERS), key=lambda row: (-missed(hit[row]), -requests(hit[row]), row)
    )
    shown, rest = ranked[:MAX_ROWS], [*ranked[MAX_ROWS:], OTHERS]
    rows = [_row(name, hit[name], before, target) for name in shown]
    others = (sum(hit[row][column] for row in rest if row in hit) for column in range(4))
    together: Outcomes = (next(others), next(others), next(others), next(others))
    return [*rows, _row(OTHERS, together, before, target)] if requests(together) else rows


def _row(name: str, counts: Outcomes, before: Table, target: float) -> dict[str, Any]:
    """Return one row. `burn`: how many times as fast as the target allows its requests used up the error budget."""
    usual = on_time_share(before[name]) if name and name in before else None
    share = on_time_share(counts)
    burn = None if share is None or target >= 1.0 else (1.0 - share) / (1.0 - target)
    return {"name": name, **_counts(counts), "on_time": share, "before": usual, "burn": burn}


def _counts(counts: Outcomes) -> dict[str, int]:
    return {
        "requests": requests(counts),
        "late": counts[LATE],
        "failed": counts[FAILED],
        "rejected": counts[REJECTED],
        "missed": missed(counts),
    }


def burn_words(burn: float | None) -> str:
    """Return how fast the error budget was used, such as 6.2×."""
    return UNKNOWN if burn is None else f"{burn:.1f}×"


def length_label(name: str) -> str:
    """Return a range of prompt lengths in words, such as 1k–4k."""
    if not name.isdigit():
        return "not read" if name == UNREAD else "others"
    following = next((bound for bound in LENGTHS if bound > int(name)), None)
    low = f"{int(name) // 1024}k"
    if following is None:
        return f"{low} or more"
    return f"under {following // 1024}k" if name == "0" else f"{low}–{following // 1024}k"


def _length_order(name: str) -> int:
    return int(name) if name.isdigit() else LENGTHS[-1] + 1


def markdown_of(report: dict[str, Any]) -> str:
    """Return the report as a Markdown document, for a post-mortem."""
    lines = [f"# Incident {report['number']}: {report['title']}", ""]
    ended = f"closed at {report['closed_at']}" if report["state"] == IncidentState.CLOSED else "still open"
    where = f"pool {report['pool']}" if report["pool"] else "the whole fleet"
    lines += [f"Onset {report['onset']}, {ended}; {where}.", "", f"**What is wrong.** {report['wrong']}", ""]
    lines += [f"**Why.** {report['why']}", "", f"**What to do.** {report['cure']}", "", "## Causes", ""]
    lines += [
        f"- {item['finding']} (confidence {item['confidence']:.2f}). {item['evidence']}" for item in report["causes"]
    ]
    for title, name, _ in (item for item in TABLES if report[item[1]] or item[1] != "regions"):
        lines += [
            "",
            f"## {title} hit",
            "",
            f"| {title} | Requests | Late | Failed | Rejected | On time | Burn |",
            "|---|--:|--:|--:|--:|--:|--:|",
        ]
        for row in report[name]:
            label = length_label(row["name"]) if name == "lengths" else row.get("label") or row["name"] or "others"
            figures = " | ".join(f"{row[column]:,}" for column in ("requests", "late", "failed", "rejected"))
            lines.append(f"| {_cell(label)} | {figures} | {percent(row['on_time'])} | {burn_words(row['burn'])} |")
    lines += ["", "## What changed before", ""]
    lines += [
        f"- {item['at']} ({item['before_s']} s before): {item['verb']} {_cell(item['object'])} by {_cell(item['by'])}: "
        f"{item['verdict']}"
        for item in report["changes"]
    ] or ["Nothing in the hour before."]
    lines += ["", "## Timeline", ""]
    lines += [
        f"- {item['at']} {item['kind']}{' by ' + _cell(item['by']) if item['by'] else ''}: {_cell(item['text'])}"
        for item in report["timeline"]
    ]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
