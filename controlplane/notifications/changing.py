"""Creates, changes, and deletes channels, routes, and silences, and tests a channel.

Channels and routes need the role admin. A silence needs the role operator in its pool, or everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.db import transaction
from django.utils import timezone

from controlplane.fleet.models.pool import Pool
from controlplane.incidents.handling import pool_of
from controlplane.incidents.models.incident import Incident
from controlplane.notifications.models.notification import NotificationChannel, NotificationRoute, Silence
from controlplane.notifications.sending import Message, send
from controlplane.platform import audit, recorded_change
from controlplane.platform.actor import Actor
from controlplane.platform.field_problems import check_names, problem
from controlplane.platform.resource.declared_field import settable_fields
from controlplane.platform.resource.resource import Resource
from controlplane.platform.role import Role
from controlplane.platform.roles import require

Thing = TypeVar("Thing", NotificationChannel, NotificationRoute, Silence)
ACCEPTED = "The receiver accepted the message."
"""Result of a test that succeeded."""
SILENCE_FOR = timedelta(minutes=30)
"""How long the button on an incident's page silences it."""


def create(model: type[Thing], *, actor: Actor, why: str = "", **fields: Any) -> Thing:
    """Store a new object. Raises NotAllowedError, InvalidFieldsError."""
    thing = model(**fields)
    _allow(thing, actor)
    check_names(fields, settable_fields(model, creating=True))
    _check(thing)
    return recorded_change.create(thing, f"{_NOUNS[model]}.create", actor=actor, why=why)


def change(
    thing: Thing, changes: Mapping[str, Any], *, actor: Actor, expected: int | None = None, why: str = ""
) -> Thing:
    """Change an object. Raises NotAllowedError, InvalidFieldsError, StaleRevisionError."""
    _allow(thing, actor)
    check_names(changes, settable_fields(type(thing)))
    shown = type(thing)(**{name: getattr(thing, name) for name in settable_fields(type(thing))} | dict(changes))
    _allow(shown, actor)
    _check(shown)
    verb = f"{_NOUNS[type(thing)]}.change"
    return recorded_change.change(thing, changes, verb, actor=actor, expected=expected, why=why)


def delete(thing: Thing, *, actor: Actor, expected: int | None = None, why: str = "") -> None:
    """Delete an object. Raises NotAllowedError, StaleRevisionError, and InUseError for a channel with routes."""
    _allow(thing, actor)
    recorded_change.delete(thing, f"{_NOUNS[type(thing)]}.delete", actor=actor, expected=expected, why=why)


def silence_incident(incident: Incident, *, actor: Actor, why: str = "") -> Silence:
    """Silence one incident for SILENCE_FOR; silencing it again extends it. Raises NotAllowedError."""
    require(actor, Role.OPERATOR, pool_of(incident))
    slug, until = f"incident-{incident.pk}", timezone.now() + SILENCE_FOR
    with transaction.atomic():
        known = Silence.objects.select_for_update().filter(slug=slug).first()
        if known is not None:
            return recorded_change.change(known, {"until": until}, "silence.change", actor=actor, why=why)
        reason = why or f"silenced by {actor.name}"
        stored = Silence(slug=slug, pool=incident.pool, incident=incident.pk, until=until, reason=reason[:200])
        return recorded_change.create(stored, "silence.create", actor=actor, why=why)


def try_channel(channel: NotificationChannel, *, actor: Actor, expected: int | None = None, why: str = "") -> bool:
    """Send a test message, and store its result. Return whether the receiver accepted it. Raises NotAllowedError."""
    require(actor, Role.ADMIN)
    # Outside a transaction: the receiver may answer late.
    failure = send(channel.address_env, Message(f"Test of channel {channel.name}", "Headway can reach this channel."))
    result = failure or ACCEPTED
    with transaction.atomic():
        NotificationChannel.objects.filter(pk=channel.pk).update(tested_at=timezone.now(), test_result=result[:200])
        audit.record_for(actor, "notification_channel.test", channel, after={"result": result}, why=why)
    channel.refresh_from_db()
    return not failure


def _allow(thing: Thing, actor: Actor) -> None:
    if isinstance(thing, Silence):
        # An incident is named by its number, of any pool, unless the pool is stated, too: then both must match.
        require(actor, Role.OPERATOR, Pool.objects.filter(slug=thing.pool).first() if thing.pool else None)
    else:
        require(actor, Role.ADMIN)


def _check(thing: Thing) -> None:
    """Raise InvalidFieldsError unless fields that depend on each other fit."""
    if not isinstance(thing, NotificationRoute):
        return
    if bool(thing.quiet_from) != bool(thing.quiet_to):
        raise problem("quiet_to", "Set both ends of the quiet hours, or none.")
    try:
        ZoneInfo(thing.time_zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise problem("time_zone", "Use an IANA name such as Europe/Berlin.") from None
    known = set(Pool.objects.filter(slug__in=thing.pools).values_list("slug", flat=True))
    if unknown := [slug for slug in thing.pools if slug not in known]:
        raise problem("pools", f"There is no pool {unknown[0]}.")


_NOUNS: dict[type[Any], str] = {
    NotificationChannel: "notification_channel",
    NotificationRoute: "notification_route",
    Silence: "silence",
}


def _resource(model: type[Any], rows: Callable[[Any], Any], role: Role) -> Resource:
    return Resource(
        f"{_NOUNS[model]}s",
        model,
        rows,
        created=partial(create, model),
        changed=change,
        deleted=delete,
        changes_need=role,
        whole_fleet=True,
    )


CHANNELS = _resource(NotificationChannel, lambda _actor: NotificationChannel.objects.all(), Role.ADMIN)
ROUTES = _resource(NotificationRoute, lambda _actor: NotificationRoute.objects.select_related("channel"), Role.ADMIN)
SILENCES = _resource(Silence, lambda _actor: Silence.objects.all(), Role.OPERATOR)
