"""`/api/v1/audit`."""

from __future__ import annotations

from rest_framework import serializers

from controlplane.access.audit_search import visible_events
from controlplane.platform.actor import API, COMMAND, CONSOLE, PROGRAM
from controlplane.platform.api.listing import Listing, exact, moment, one_of
from controlplane.platform.api.strict_fields import ModelShape
from controlplane.platform.api.views import Listed, ObjectView, by_method
from controlplane.platform.models.audit_event import AuditEvent


class AuditEventShape(ModelShape):
    """One change: its actor, the object before and after it, and its reason."""

    actor = serializers.CharField(source="actor_name")
    pool = serializers.CharField(source="pool_slug")
    before = serializers.DictField(allow_null=True)
    after = serializers.DictField(allow_null=True)

    class Meta:
        model = AuditEvent
        fields = (
            "id",
            "at",
            "actor",
            "via",
            "verb",
            "object_kind",
            "object_id",
            "pool",
            "before",
            "after",
            "why",
            "request_id",
        )


class AuditEvents(Listed):
    """List audit events, newest first."""

    noun = "audit"
    shape = AuditEventShape
    rows = staticmethod(visible_events)
    listing = Listing(
        {"at": ("at", "pk")},
        "-at",
        {
            "actor": exact("actor_name", "Actor name at that time."),
            "via": one_of("via", (CONSOLE, API, COMMAND, PROGRAM), "Channel."),
            "verb": exact("verb", "Action, for example engine.drain."),
            "object_kind": exact("object_kind", "Kind of the object."),
            "object_id": exact("object_id", "Id of the object."),
            "pool": exact("pool_slug", "Slug of the pool."),
            "request_id": exact("request_id", "Id of the request that made the change."),
            "since": moment("at__gte", "Events at this time or later."),
            "until": moment("at__lt", "Events before this time."),
        },
    )


class OneAuditEvent(ObjectView):
    """One audit event."""

    noun = "audit"
    shape = AuditEventShape
    rows = staticmethod(visible_events)
    field = "pk"
    says = by_method(GET="Return the event.")
