"""The Notifications pages: the log of messages, rules, channels, routes, and silences."""

from __future__ import annotations

from typing import Any

from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe

from controlplane.fleet.models.pool import Pool
from controlplane.incidents.models.incident import Incident, IncidentState
from controlplane.notifications.changing import ACCEPTED, CHANNELS, ROUTES, SILENCES, try_channel
from controlplane.notifications.models.notification import (
    NotificationChannel,
    NotificationRoute,
    NotificationSend,
    NotifiedEvent,
    SendState,
    Silence,
)
from controlplane.notifications.planned import rules_with_channels
from controlplane.platform.actor import Actor
from controlplane.platform.format import day_time, moment, some_names, zone_name
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
        # A route may name a deleted pool, which a person unticks.
        "pools": [FieldOption(slug, slug) for slug in sorted({*_pool_slugs(), *_routed_pools()})],
    }


def _of_silences() -> Options:
    """Return pools, and incidents that are open or that a silence names."""
    named = Q(pk__in=Silence.objects.exclude(incident=None).values("incident"))
    incidents = Incident.objects.filter(named | Q(state=IncidentState.OPEN))[:200]
    return {
        "pool": [FieldOption("", "All pools"), *(FieldOption(slug, slug) for slug in _pool_slugs())],
        "incident": [
            FieldOption("", "All incidents"),
            *(FieldOption(str(item.pk), f"#{item.pk} {item.title}") for item in incidents),
        ],
    }


def _pool_slugs() -> list[str]:
    return list(Pool.objects.order_by("slug").values_list("slug", flat=True)[:500])


def _routed_pools() -> list[str]:
    return [slug for pools in NotificationRoute.objects.values_list("pools", flat=True) for slug in pools]


def _test(channel: NotificationChannel, *, actor: Actor, why: str) -> str:
    return "accepted" if try_channel(channel, actor=actor, why=why) else "failed"


def _pages(name: str, noun: str, resource: Any, **more: Any) -> Any:
    address, template = f"{ADDRESS}/{name}", f"notifications/{name}.html"
    more.setdefault("options", _options)
    pages = ObjectPages(resource, noun, PAGE, address, template, tabs, name, SAID, **more)
    return require_http_methods(["GET", "HEAD", "POST"])(all_pools_only(pages.view))


def _last_test(channel: NotificationChannel) -> list[tuple[str, str]]:
    if channel.tested_at is None:
        return [("Last test", "not tested")]
    result = "accepted" if channel.test_result == ACCEPTED else "failed"
    return [("Last test", f"{result} {day_time(channel.tested_at, 'seconds')} {zone_name()}")]


def _test_of(_actor: Actor, channel: NotificationChannel) -> dict[str, Any]:
    accepted = channel.test_result == ACCEPTED
    tested = moment(channel.tested_at, timezone.now())
    return {"tested": tested, "accepted": accepted, "routes": channel.routes.count()}


def _has_channels(_request: HttpRequest) -> dict[str, Any]:
    return {"has_channels": NotificationChannel.objects.exists()}


def _active(_request: HttpRequest) -> dict[str, Any]:
    return {"active": Silence.objects.filter(until__gt=timezone.now()).count()}


def _state(silence: Silence) -> list[tuple[str, str]]:
    return [("State", "active" if silence.until > timezone.now() else "over")]


channels = _pages("channels", "channel", CHANNELS, more=_last_test, context=_test_of, acts={"test": _test})
routes = _pages(
    "routes",
    "route",
    ROUTES,
    besides=_has_channels,
    blanks={"Pools": "all", "Quiet from": "none", "Quiet until": "none"},
)
silences = _pages(
    "silences",
    "silence",
    SILENCES,
    more=_state,
    options=_of_silences,
    besides=_active,
    blanks=dict.fromkeys(("Pool", "Incident"), "any"),
)
