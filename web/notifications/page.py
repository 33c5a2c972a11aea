"""The Notifications pages: the log of messages, rules, channels, routes, and silences."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe

from controlplane.notifications.changing import CHANNELS, ROUTES, SILENCES, try_channel
from controlplane.notifications.models.notification import (
    NotificationChannel,
    NotificationSend,
    NotifiedEvent,
    SendState,
    Silence,
)
from controlplane.notifications.planned import rules_with_channels
from controlplane.platform.actor import Actor
from controlplane.platform.format import day_time, some_names, zone_name
from web.shell.console_request import asked, console_actor, filter_chips, kept, listed
from web.shell.form_field import FieldOption
from web.shell.frame import shell_context
from web.shell.no_role import needs_all_pools
from web.shell.object_pages import ObjectPages, Options

PAGE = "Notifications"
ADDRESS = "/notifications"
SHAPES = {
    SendState.SENT: "serving",
    SendState.GIVEN_UP: "lost",
    SendState.UNKNOWN: "unknown",
    SendState.RETRYING: "hot",
    SendState.SILENCED: "quarantined",
}
"""State → shape beside its name. Other states have none."""
RULE_SHAPES = {
    "ok": "serving", "pending": "hot", "firing": "lost", "unknown": "unknown", "external": "",
}  # fmt: skip
NAMED_SUBJECTS = 3
SAID = {
    "created": "Added.",
    "changed": "Changed.",
    "deleted": "Deleted.",
    "accepted": "The receiver accepted the test message.",
    "failed": "The test failed; see Last test.",
}
all_pools_only = needs_all_pools(PAGE, "Messages are about the whole fleet. Viewing them")
_TABS = (
    ("notifications", "Messages", ADDRESS),
    ("rules", "Rules", f"{ADDRESS}/rules"),
    ("channels", "Channels", f"{ADDRESS}/channels"),
    ("routes", "Routes", f"{ADDRESS}/routes"),
    ("silences", "Silences", f"{ADDRESS}/silences"),
)


def tabs(_actor: Actor) -> tuple[tuple[str, str, str], ...]:
    """Return (name, title, address) of the pages."""
    return _TABS


@require_safe
@all_pools_only
def messages(request: HttpRequest) -> HttpResponse:
    """Show the messages, newest first, with what became of each."""
    state = asked(request, "state", 8)
    given = {"state": state} if state in SendState.values else {}
    rows = NotificationSend.objects.select_related("channel")
    page = listed(request, rows.filter(**given).order_by("-at", "-id"))
    context = shell_context(
        request,
        page=PAGE,
        tabs=tabs(console_actor(request)),
        tab="notifications",
        rows=message_rows(page),
        total=rows.count(),
        failed=rows.filter(state__in=(SendState.GIVEN_UP, SendState.UNKNOWN)).count(),
        has_channels=NotificationChannel.objects.exists(),
        paged=page,
        keep=kept(**given),
        states=SendState.choices,
        chosen=given.get("state", ""),
        chips=filter_chips(ADDRESS, given, {"state": "state"}),
    )
    return render(request, "notifications/messages.html", context)


@require_safe
@all_pools_only
def rules(request: HttpRequest) -> HttpResponse:
    """Show each rule with its state, the last incident, and the channels that get its messages."""
    rows = rules_with_channels(timezone.now())
    counts = {name: sum(item.state == name for item in rows) for name in ("firing", "pending", "unknown")}
    shown = [(item, RULE_SHAPES[item.state], some_names(item.subjects, NAMED_SUBJECTS)) for item in rows]
    context = shell_context(
        request, page=PAGE, tabs=tabs(console_actor(request)), tab="rules", rows=shown, counts=counts
    )
    return render(request, "notifications/rules.html", context)


def message_rows(sends: Any) -> list[dict[str, Any]]:
    """Return each message with the shape of its state."""
    return [{"send": item, "shape": SHAPES.get(SendState(item.state), "")} for item in sends]


def notified(incident: int) -> list[dict[str, Any]]:
    """Return the newest message of each channel about the incident, and how many that channel has got."""
    newest: dict[int, dict[str, Any]] = {}
    for row in message_rows(NotificationSend.objects.filter(incident=incident).select_related("channel")[:500]):
        known = newest.setdefault(row["send"].channel_id, row | {"sent": 0})
        known["sent"] += row["send"].state == SendState.SENT
    return sorted(newest.values(), key=lambda row: row["send"].channel.name)


def _options() -> Options:
    return {
        "channel": [FieldOption(item.slug, item.name) for item in NotificationChannel.objects.all()[:500]],
        "events": [FieldOption(str(value), str(label)) for value, label in NotifiedEvent.choices],
    }


def _test(channel: NotificationChannel, *, actor: Actor, why: str) -> str:
    return "accepted" if try_channel(channel, actor=actor, why=why) else "failed"


def _pages(name: str, noun: str, resource: Any, **more: Any) -> Any:
    address, template = f"{ADDRESS}/{name}", f"notifications/{name}.html"
    pages = ObjectPages(resource, noun, PAGE, address, template, tabs, name, SAID, options=_options, **more)
    return require_http_methods(["GET", "HEAD", "POST"])(all_pools_only(pages.view))


def _last_test(channel: NotificationChannel) -> list[tuple[str, str]]:
    tested = channel.tested_at
    return [
        ("Last test", f"{day_time(tested, 'seconds')} {zone_name()}: {channel.test_result}" if tested else "not tested")
    ]


def _state(silence: Silence) -> list[tuple[str, str]]:
    return [("State", "active" if silence.until > timezone.now() else "over")]


channels = _pages("channels", "channel", CHANNELS, more=_last_test, acts={"test": _test})
routes = _pages("routes", "route", ROUTES, blanks={"Pools": "all", "Quiet from": "none", "Quiet until": "none"})
silences = _pages("silences", "silence", SILENCES, more=_state, blanks=dict.fromkeys(("Pool", "Incident"), "any"))
