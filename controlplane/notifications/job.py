"""The leased job of notifications: takes changes of state, stores a message per channel, and sends what is due.

A message is claimed in a committed write before it is sent. A process that dies in between leaves the claim, and the
message counts as unknown: it may have arrived, so it is not sent again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from celery import shared_task
from django.conf import settings
from django.db import DatabaseError, transaction
from django.utils import timezone

from controlplane.incidents.handling import take_state_changes
from controlplane.incidents.models.incident import Incident, IncidentState
from controlplane.notifications.models.notification import (
    NotificationChannel,
    NotificationRoute,
    NotificationSend,
    NotifiedEvent,
    SendState,
    Silence,
)
from controlplane.notifications.planned import (
    NotableChange,
    change_of_budget,
    change_of_entry,
    change_of_incident,
    planned,
    silence_note,
    silence_of,
)
from controlplane.notifications.sending import Message, send
from controlplane.platform.jobs.lease import acquire, release, this_owner
from controlplane.platform.models.audit_event import AuditEvent
from routing.values.counted import count

JOB = "notify"
LEASE = timedelta(seconds=60)
BUDGETS_WITHIN = timedelta(minutes=10)
CLAIM_FOR = timedelta(minutes=3)
"""Age at which a claim without a result belongs to a process that died. Receivers answer far sooner or time out."""
DIGEST_FROM, DIGEST_MOST = 3, 50
"""A channel with this many due messages gets one that lists them."""
RETRY_S = (10, 30, 90, 270, 810)
"""Pause after each failed attempt. The attempt after the last one is the last."""
CHANNELS_MOST = 8
"""Channels served per round, so that receivers that time out do not use up the lease."""
KEPT = timedelta(days=90)
_OPEN = (SendState.WAITING, SendState.HELD, SendState.RETRYING)
Sender = Callable[[str, Message], str]

logger = logging.getLogger(__name__)


@shared_task(name="controlplane.notify", ignore_result=True)
def notify() -> None:
    """Run every two seconds."""
    try:
        run(timezone.now())
    except DatabaseError as error:
        # What is not stored is taken in the next round.
        logger.warning("notifications cannot be stored now", extra={"error": type(error).__name__})


def run(now: datetime, sender: Sender = send) -> int:
    """Run one round, if this process gets the lease. Return the number of attempts to send."""
    lease = acquire(JOB, this_owner(), LEASE, clock=lambda: now)
    if lease is None:
        return 0
    store_changes(now)
    sent = send_due(now, sender)
    release(lease, progress={"attempts": sent}, clock=lambda: now)
    return sent


def store_changes(now: datetime) -> int:
    """Take the waiting changes of state, and store their messages in the same transaction. Return how many."""
    routes = list(NotificationRoute.objects.select_related("channel"))
    silences = list(Silence.objects.filter(until__gt=now))
    with transaction.atomic():
        changes = [change_of_entry(entry) for entry in take_state_changes(now)]
        notices = AuditEvent.objects.filter(verb="budget.reached", at__gte=now - BUDGETS_WITHIN).order_by("pk")
        changes += [change_of_budget(notice) for notice in notices]
        rows = [row for item in changes if item is not None for row in planned(item, routes, silences, now)]
        rows += [
            row for route in routes for item in _repeats(route, now) for row in planned(item, [route], silences, now)
        ]
        # A notice of a budget is read for minutes, and its message exists from the first time on.
        NotificationSend.objects.bulk_create(rows, ignore_conflicts=True)
    return len(rows)


def _repeats(route: NotificationRoute, now: datetime) -> list[NotableChange]:
    """Return a repeat for each open incident that no person has acknowledged, once its interval is over."""
    if not route.repeat_min:
        return []
    repeats = []
    for incident in Incident.objects.filter(state=IncidentState.OPEN, acknowledged_at=None)[:50]:
        last = NotificationSend.objects.filter(channel=route.channel, incident=incident.pk).order_by("-id").first()
        if last is None or last.ended_at is None or now - last.ended_at < timedelta(minutes=route.repeat_min):
            continue
        name = f"repeat:{incident.pk}:{last.pk}"
        repeats.append(change_of_incident(incident, NotifiedEvent.OPENED, name, "is still open"))
    return repeats


def send_due(now: datetime, sender: Sender = send) -> int:
    """Send the messages that are due. Return the number of attempts."""
    dead = NotificationSend.objects.filter(state=SendState.CLAIMED, due_at__lt=now - CLAIM_FOR)
    dead.update(
        state=SendState.UNKNOWN, ended_at=now, note="The process ended while it sent this; it is not sent again."
    )
    _hold_back(now)
    due = NotificationSend.objects.filter(state__in=_OPEN, due_at__lte=now)
    channels = NotificationChannel.objects.filter(pk__in=due.values("channel")).order_by("pk")
    attempts = 0
    # The channel whose message waits longest is first, so that none waits behind receivers that time out.
    for channel in sorted(channels, key=lambda item: due.filter(channel=item).earliest("due_at").due_at)[
        :CHANNELS_MOST
    ]:
        rows = list(due.filter(channel=channel).order_by("id")[:DIGEST_MOST])
        for part in [rows] if len(rows) >= DIGEST_FROM else [[row] for row in rows]:
            attempts += _send(channel, part, now, sender)
    return attempts


def _hold_back(now: datetime) -> None:
    """End messages that a silence matches by now, and repeats of incidents that a person has taken on."""
    silences = list(Silence.objects.filter(until__gt=now))
    for row in NotificationSend.objects.filter(state__in=_OPEN)[:500]:
        silence = silence_of(row, silences)
        note = silence_note(silence) if silence is not None else ""
        if not note and row.change.startswith("repeat:"):
            taken_on = Incident.objects.filter(pk=row.incident, state=IncidentState.OPEN, acknowledged_at=None)
            note = "" if taken_on.exists() else "The incident was acknowledged or closed."
        if note:
            still = NotificationSend.objects.filter(pk=row.pk, state__in=_OPEN)
            still.update(state=SendState.SILENCED, ended_at=now, note=note)


def _send(channel: NotificationChannel, rows: Sequence[NotificationSend], now: datetime, sender: Sender) -> int:
    """Claim the messages, send those that this process got as one, and store the result. Return 1 if it tried."""
    claimed = [
        row
        for row in rows
        if NotificationSend.objects.filter(pk=row.pk, state__in=_OPEN).update(
            state=SendState.CLAIMED, due_at=now, attempts=row.attempts + 1
        )
    ]
    if not claimed:
        return 0
    failure = sender(channel.address_env, _text(claimed))
    for row in claimed:
        mine = NotificationSend.objects.filter(pk=row.pk, state=SendState.CLAIMED)
        if not failure:
            note = "Sent with others in one message." if len(claimed) > 1 else ""
            mine.update(state=SendState.SENT, ended_at=now, note=note)
        elif row.attempts < len(RETRY_S):
            due_at = now + timedelta(seconds=RETRY_S[row.attempts])
            mine.update(state=SendState.RETRYING, due_at=due_at, note=failure[:200])
        else:
            mine.update(state=SendState.GIVEN_UP, ended_at=now, note=failure[:200])
    return 1


def _text(rows: Sequence[NotificationSend]) -> Message:
    """Return one message for these rows, with links if the console's address is known."""
    is_bad = any(row.event != NotifiedEvent.CLOSED for row in rows)
    if len(rows) == 1:
        return Message(rows[0].title, "\n".join(filter(None, (rows[0].text, _link(rows[0])))), is_bad)
    lines = [" ".join(filter(None, (f"{row.at:%H:%M:%S} UTC: {row.title}", _link(row)))) for row in rows]
    return Message(f"{count(len(rows), 'change')}, newest: {rows[-1].title}", "\n".join(lines), is_bad)


def _link(row: NotificationSend) -> str:
    if not settings.CONSOLE_URL:
        return ""
    return f"{settings.CONSOLE_URL}/{f'incidents/{row.incident}' if row.incident else 'usage/budgets'}"


def forget_sends(now: datetime) -> int:
    """Delete messages that ended longer than KEPT ago, and silences that ended as long ago. Return how many."""
    Silence.objects.filter(until__lt=now - KEPT).delete()
    return NotificationSend.objects.filter(ended_at__lt=now - KEPT).delete()[0]
