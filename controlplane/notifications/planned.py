"""Which message goes to which channel, and when: routes, silences, and quiet hours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

from controlplane.incidents import words
from controlplane.incidents.models.incident import Incident, IncidentEntry, IncidentEntryKind
from controlplane.incidents.notices import episode_of, notice_of, trend_words
from controlplane.incidents.rules import AlertRule, RuleState, rule_states
from controlplane.notifications.models.notification import (
    NotificationRoute,
    NotificationSend,
    NotifiedEvent,
    SendState,
    Severity,
    Silence,
)
from controlplane.platform.models.audit_event import AuditEvent
from planning.incidents.symptoms import CANARY_ABORTED

_EVENTS = {
    IncidentEntryKind.OPENED: NotifiedEvent.OPENED,
    IncidentEntryKind.RETURNED: NotifiedEvent.OPENED,
    IncidentEntryKind.WORSE: NotifiedEvent.WORSE,
    IncidentEntryKind.CLOSED: NotifiedEvent.CLOSED,
}
"""Kind of a timeline entry → event. Other entries notify no channel."""


@dataclass(frozen=True, slots=True)
class NotableChange:
    """A change of state that routes may send."""

    name: str
    """Unique: a channel gets at most one message of this name."""
    event: str
    severity: str
    pool: str
    title: str
    text: str
    incident: int | None = None


def change_of_entry(entry: IncidentEntry) -> NotableChange | None:
    """Return the change that an entry of a timeline is; None: no channel gets it."""
    event = _EVENTS.get(IncidentEntryKind(entry.kind))
    return change_of_incident(entry.incident, event, f"entry:{entry.pk}") if event is not None else None


def change_of_incident(incident: Incident, event: NotifiedEvent, name: str, words_of: str = "") -> NotableChange:
    """Return a change of an incident; `words_of` replaces the event's word in its title."""
    episode = episode_of(incident)
    kinds = {item.kind for item in episode.symptoms}
    if event is NotifiedEvent.OPENED and kinds == {CANARY_ABORTED}:
        event = NotifiedEvent.CANARY
    advice = "" if event is NotifiedEvent.CLOSED else words.cure(episode, {})
    notice = notice_of(incident)
    return NotableChange(
        name=name,
        event=event,
        severity=Severity.CRITICAL if words.is_critical(episode) else Severity.WARNING,
        pool=incident.pool,
        title=f"Incident {incident.pk} {words_of or _WORDS[event]}: {incident.title}",
        text=" ".join(part for part in (notice.text, trend_words(notice), advice) if part),
        incident=incident.pk,
    )


_WORDS = {
    NotifiedEvent.OPENED: "opened",
    NotifiedEvent.WORSE: "got worse",
    NotifiedEvent.CLOSED: "closed",
    NotifiedEvent.CANARY: "opened",
}


def change_of_budget(notice: AuditEvent) -> NotableChange:
    """Return the change that a notice of a budget in the audit is."""
    text = "See the Budgets page for what is spent and when it resets."
    return NotableChange(
        f"audit:{notice.pk}", NotifiedEvent.BUDGET, Severity.WARNING, "", f"Budget {notice.object_id} is used up", text
    )


def planned(
    change: NotableChange, routes: Iterable[NotificationRoute], silences: Sequence[Silence], now: datetime
) -> list[NotificationSend]:
    """Return a message, not stored yet, for each channel whose routes match.

    It waits until a matching route of the channel is outside its quiet hours.
    """
    due: dict[int, tuple[datetime, NotificationRoute]] = {}
    for route in routes:
        if route_matches(route, change):
            at = quiet_until(route, now) or now
            if route.channel_id not in due or at < due[route.channel_id][0]:
                due[route.channel_id] = (at, route)
    return [_message(change, route, at, silences, now) for at, route in due.values()]


def _message(
    change: NotableChange, route: NotificationRoute, at: datetime, silences: Sequence[Silence], now: datetime
) -> NotificationSend:
    row = NotificationSend(
        channel=route.channel,
        change=change.name,
        event=change.event,
        incident=change.incident,
        pool=change.pool,
        title=change.title[:250],
        text=change.text[:1000],
        at=now,
        state=SendState.WAITING,
        due_at=at,
    )
    if at > now:
        row.state = SendState.HELD
        row.note = f"Quiet hours of route {route.slug} until {at.astimezone(ZoneInfo(route.time_zone)):%H:%M %Z}."
    if silence := silence_of(row, silences):
        row.state, row.ended_at, row.note = SendState.SILENCED, now, silence_note(silence)
    return row


def route_matches(route: NotificationRoute, change: NotableChange) -> bool:
    """Return whether the route sends this change."""
    if change.event not in route.events:
        return False
    if route.severity == Severity.CRITICAL and change.severity != Severity.CRITICAL:
        return False
    return not route.pools or change.pool in route.pools


def rules_with_channels(now: datetime) -> list[RuleState]:
    """Return the state of each rule, with the channels that get its messages."""
    routes = list(NotificationRoute.objects.select_related("channel"))
    return [replace(item, channels=channels_of_rule(item.rule, routes)) for item in rule_states(now)]


def channels_of_rule(rule: AlertRule, routes: Iterable[NotificationRoute]) -> dict[str, list[str]]:
    """Return the channels that get a message when an incident opens by this rule, with their pools; empty: all."""
    if not rule.symptom:
        return {}
    event = NotifiedEvent.CANARY if rule.symptom == CANARY_ABORTED else NotifiedEvent.OPENED
    pools: dict[str, list[str]] = {}
    for route in routes:
        if route_matches(route, NotableChange("", event, rule.severity, next(iter(route.pools), ""), "", "")):
            known = pools.get(route.channel.slug)
            together = {*route.pools, *(known or ())} if route.pools and known != [] else ()
            pools[route.channel.slug] = sorted(together)
    return pools


def silence_of(row: NotificationSend, silences: Iterable[Silence]) -> Silence | None:
    """Return the first of these silences that matches the message."""
    for silence in silences:
        wanted = ((silence.pool, row.pool), (silence.incident, row.incident), (silence.event, row.event))
        if all(value in (None, "", given) for value, given in wanted):
            return silence
    return None


def silence_note(silence: Silence) -> str:
    """Return why a message is not sent."""
    return f"Silence {silence.slug} until {silence.until:%d %b %H:%M} UTC: {silence.reason}"[:200]


def quiet_until(route: NotificationRoute, now: datetime) -> datetime | None:
    """Return the end of the route's quiet hours that contain `now`, in UTC; None outside them.

    Times of day are local: a night with a change of the clock is an hour shorter or longer.
    """
    if not route.quiet_from or route.quiet_from == route.quiet_to:
        return None
    zone = ZoneInfo(route.time_zone)
    start, end = time.fromisoformat(route.quiet_from), time.fromisoformat(route.quiet_to)
    local = now.astimezone(zone)
    clock = local.time()
    is_quiet = start <= clock < end if start < end else clock >= start or clock < end
    if not is_quiet:
        return None
    day = local.date() + timedelta(days=1 if start > end and clock >= start else 0)
    until = datetime.combine(day, end, zone).astimezone(UTC)
    # That time of day comes twice, and the first one is over.
    return until if until > now else datetime.combine(day, end.replace(fold=1), zone).astimezone(UTC)
