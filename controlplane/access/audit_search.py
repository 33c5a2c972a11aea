"""Finds audit events that the user may see, by filter."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.db.models import Q, QuerySet

from controlplane.fleet.visibility import visible_pools
from controlplane.platform.actor import API, PROGRAM, Actor
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.role import Role
from controlplane.platform.roles import may
from controlplane.platform.search_filter import SearchFilter, moment_of
from controlplane.policies.reading import visible_policies

EXPORT_LIMIT = 5_000
"""Maximum number of events in one download."""
NAMED_KINDS = ("engine", "api_key")
"""Kinds of objects that people identify by name and programs by a generated id."""


_BY_PROGRAM = Q(via=PROGRAM) | Q(via=API, actor_name__startswith="key ")
"""Changes by jobs, and by API keys, which programs use."""


KEY_EVENTS = (
    "incident.open", "incident.reopen", "incident.close", "engine.lost", "engine.back", "engine.restart", "engine.exit",
    "engine.quarantine", "engine.readmit", "canary.abort", "policy.publish", "policy.roll_back", "policy.schedule_fail",
    "kv_node.silent", "budget.reached",
)  # fmt: skip
"""Verbs of the changes by programs that people want to see beside their own; jobs record many others."""


_BY = {"people": ~_BY_PROGRAM, "programs": _BY_PROGRAM, "main": ~_BY_PROGRAM | Q(verb__in=KEY_EVENTS)}


@dataclass(frozen=True, slots=True)
class AuditFilter(SearchFilter):
    """Search conditions; an empty field matches everything.

    `since` and `until` are ISO 8601, in UTC unless they include an offset.
    """

    by: str = ""
    """Changes by `people`, by `programs`, or `main` ones: by people, and KEY_EVENTS. Any other text matches all."""
    person: str = ""
    verb: str = ""
    """A verb such as engine.drain, or a prefix such as engine."""
    object: str = ""
    """An object's id or name after its kind, such as engine:e-01, or only a kind, such as engine:."""
    pool: str = ""
    request: str = ""
    since: str = ""
    until: str = ""


def visible_events(actor: Actor) -> QuerySet[AuditEvent]:
    """Return the audit events of the actor's pools and of the policies that these pools follow."""
    if may(actor, Role.VIEWER):
        return AuditEvent.objects.all()
    pools = Q(pool_slug__in=visible_pools(actor).values("slug"))
    policies = Q(pool_slug="", object_kind="policy", object_id__in=visible_policies(actor).values("slug"))
    return AuditEvent.objects.filter(pools | policies)


def happened_at(event: AuditEvent) -> datetime:
    """Return when the change happened: a job stores losses and restarts of engines some seconds after them."""
    known = event.after.get("at") if isinstance(event.after, dict) else None
    return datetime.fromtimestamp(known, UTC) if isinstance(known, int | float) else event.at


def search(actor: Actor, wanted: AuditFilter) -> QuerySet[AuditEvent]:
    """Return the visible events that match, newest first. Raises UnreadableFilterError."""
    events = visible_events(actor)
    if wanted.by in _BY:
        events = events.filter(_BY[wanted.by])
    if wanted.person:
        events = events.filter(actor_name=wanted.person)
    if wanted.verb:
        whole = "." in wanted.verb
        events = events.filter(**{"verb" if whole else "verb__startswith": wanted.verb if whole else f"{wanted.verb}."})
    if wanted.object:
        events = _of_object(events, wanted.object)
    if wanted.pool:
        events = events.filter(pool_slug=wanted.pool)
    if wanted.request:
        events = events.filter(request_id=wanted.request)
    if wanted.since:
        events = events.filter(at__gte=moment_of("since", wanted.since))
    if wanted.until:
        events = events.filter(at__lt=moment_of("until", wanted.until))
    return events.order_by("-at", "-id")


def exported(event: AuditEvent) -> dict[str, Any]:
    """Return the event as JSON values. Secrets were removed when the event was recorded."""
    return {
        "id": event.pk,
        "at": event.at.isoformat(),
        "actor": event.actor_name,
        "via": event.via,
        "verb": event.verb,
        "object": {"kind": event.object_kind, "id": event.object_id},
        "pool": event.pool_slug,
        "before": event.before,
        "after": event.after,
        "why": event.why,
        "request_id": event.request_id,
    }


def _of_object(events: QuerySet[AuditEvent], wanted: str) -> QuerySet[AuditEvent]:
    kind, separator, name = wanted.partition(":")
    if not separator:
        return events.filter(_called(wanted))
    of_kind = events.filter(object_kind=kind)
    return of_kind.filter(_called(name)) if name else of_kind


def _called(wanted: str) -> Q:
    """Match objects with this id, and named objects that have or had this name."""
    named = AuditEvent.objects.filter(object_kind__in=NAMED_KINDS)
    ids = named.filter(Q(after__name=wanted) | Q(before__name=wanted)).values("object_id")
    return Q(object_id=wanted) | Q(object_kind__in=NAMED_KINDS, object_id__in=ids)
