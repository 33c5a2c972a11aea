"""Which fields of an object files manage, and who last changed a field otherwise."""

from __future__ import annotations

from django.db import models

from controlplane.manifests.kinds import KINDS
from controlplane.manifests.models.applied_manifest import AppliedManifest
from controlplane.platform.audit_values import kind_of, public_id
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.resource.declared_field import settable_fields
from controlplane.policies.document.schema import Path, path_text
from planning.documents.policy_with_automation import AUTOMATION

_EVENTS = 50
"""Number of an object's newest changes among which a field's author is searched."""


def managers_by_field(thing: models.Model) -> dict[str, str]:
    """Return who manages each managed field of a stored object, in words, by paths such as document.ttft_slo_s."""
    kind = next((kind for kind in KINDS if isinstance(thing, kind.resource.model)), None)
    if kind is None:
        return {}
    # Its fixed fields are its name; nothing changes them.
    fixed = kind.resource.created_fields.keys() - settable_fields(type(thing)).keys()
    rows = AppliedManifest.objects.filter(kind=kind.name, object_id=public_id(thing))
    return {path_text(path): row.managed_by for row in rows for path in row.values if path[0] not in fixed}


def author_of(thing: models.Model, path: Path, *, until: int) -> str:
    """Return who last changed the field, up to the audit event with this primary key; empty if that is unknown."""
    name = path[0]
    if name == "document":
        name = "automation_document" if path[1:2] == (AUTOMATION,) else "routing_document"
    events = AuditEvent.objects.filter(object_kind=kind_of(thing), object_id=public_id(thing), pk__lte=until)
    for event in events.order_by("-pk")[:_EVENTS]:
        old, new = event.before or {}, event.after or {}
        if name in new and name in old and old[name] != new[name]:
            return event.actor_name
    return ""
