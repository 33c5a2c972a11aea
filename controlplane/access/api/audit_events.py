"""`/api/v1/audit`."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.access.api.audit_event_shape import AuditEventShape
from controlplane.access.audit_search import visible_events
from controlplane.platform.actor import API, COMMAND, CONSOLE, PROGRAM
from controlplane.platform.api.base import ApiView
from controlplane.platform.api.filters import exact, moment, one_of
from controlplane.platform.api.listing import Listing


class AuditEvents(ApiView):
    """All changes anybody made."""

    noun = "audit"
    shape = AuditEventShape
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

    def get(self, request: Request) -> Response:
        """List events, the newest first."""
        return self.show_page(visible_events(self.actor))


class OneAuditEvent(ApiView):
    """One change."""

    noun = "audit"
    shape = AuditEventShape

    def get(self, request: Request, *, event: int) -> Response:
        """Return the event."""
        return self.show(visible_events(self.actor).get(pk=event))
