"""What people do with incidents, and what notifiers take from them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from controlplane.fleet.models.pool import Pool
from controlplane.fleet.visibility import visible_pools
from controlplane.incidents.models.incident import Incident, IncidentEntry, IncidentEntryKind, IncidentState
from controlplane.platform import audit
from controlplane.platform.actor import Actor
from controlplane.platform.field_problems import problem
from controlplane.platform.revisions import bump, locked
from controlplane.platform.role import Role
from controlplane.platform.roles import may, require

MAX_NOTES = 200
"""Maximum number of notes per incident."""


def visible_incidents(actor: Actor) -> QuerySet[Incident]:
    """Return the incidents of the actor's pools; those of the whole fleet are for roles everywhere."""
    if may(actor, Role.VIEWER):
        return Incident.objects.all()
    return Incident.objects.filter(pool__in=visible_pools(actor).values("slug"))


def acknowledge(incident: Incident, *, actor: Actor, expected: int | None = None, why: str = "") -> bool:
    """Record that the actor has taken the incident on. Return False if someone has before.

    Raises NotAllowedError, StaleRevisionError.
    """
    require(actor, Role.OPERATOR, pool_of(incident))
    with transaction.atomic():
        stored = locked(incident, expected)
        if stored.acknowledged_at is not None:
            return False
        changes = {"acknowledged_at": timezone.now(), "acknowledged_by": actor.name[:150]}
        _changed(stored, changes, IncidentEntryKind.ACKNOWLEDGED, "incident.acknowledge", actor, why)
    incident.refresh_from_db()
    return True


def add_note(incident: Incident, text: str, *, actor: Actor, expected: int | None = None) -> IncidentEntry:
    """Add a note to the timeline. Raises NotAllowedError, InvalidFieldsError."""
    require(actor, Role.OPERATOR, pool_of(incident))
    text = text.strip()[:1000]
    if not text:
        raise problem("text", "Write a note.")
    with transaction.atomic():
        stored = locked(incident, expected)
        if stored.entries.filter(kind=IncidentEntryKind.NOTE).count() >= MAX_NOTES:
            raise problem("text", f"An incident has at most {MAX_NOTES} notes.")
        _changed(stored, {}, IncidentEntryKind.NOTE, "incident.note", actor, text)
    incident.refresh_from_db()
    return incident.entries.filter(kind=IncidentEntryKind.NOTE).latest("id")


def close(incident: Incident, *, actor: Actor, expected: int | None = None, why: str = "") -> bool:
    """Close the incident by hand; while its trouble lasts, it opens no other one. Return False if it is closed.

    Raises NotAllowedError, StaleRevisionError.
    """
    require(actor, Role.OPERATOR, pool_of(incident))
    with transaction.atomic():
        stored = locked(incident, expected)
        if stored.state == IncidentState.CLOSED:
            return False
        changes = {"state": IncidentState.CLOSED, "closed_at": timezone.now(), "closed_by": actor.name[:150]}
        _changed(stored, changes, IncidentEntryKind.CLOSED, "incident.close", actor, why)
    incident.refresh_from_db()
    return True


def take_state_changes(now: datetime, at_most: int = 100) -> list[IncidentEntry]:
    """Return the changes of state that are not taken yet, oldest first. Each is returned once, to one caller.

    Notes are no changes of state.
    """
    waiting = IncidentEntry.objects.filter(taken_at=None).exclude(kind=IncidentEntryKind.NOTE).order_by("id")
    taken = [
        pk
        for pk in waiting.values_list("pk", flat=True)[:at_most]
        if IncidentEntry.objects.filter(pk=pk, taken_at=None).update(taken_at=now)
    ]
    return list(IncidentEntry.objects.filter(pk__in=taken).select_related("incident").order_by("id"))


def pool_of(incident: Incident) -> Pool | None:
    """Return the incident's pool; None: the whole fleet, or a deleted pool, for which a role everywhere is needed."""
    return Pool.objects.filter(slug=incident.pool).first() if incident.pool else None


def _changed(
    incident: Incident, changes: dict[str, Any], kind: IncidentEntryKind, verb: str, actor: Actor, text: str
) -> None:
    bump(incident, changes)
    IncidentEntry.objects.create(incident=incident, at=timezone.now(), kind=kind, text=text[:1000], by=actor.name[:150])
    # A note's text is in the timeline; the audit has its beginning as the reason.
    audit.record_for(
        actor, verb, incident, after={name: str(value) for name, value in changes.items()}, why=text, pool=incident.pool
    )
