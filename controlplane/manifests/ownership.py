"""Which fields of an object files manage, and who last changed a field otherwise."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import models
from typing_extensions import override

from controlplane.manifests.kinds import KINDS
from controlplane.manifests.models.applied_manifest import AppliedManifest
from controlplane.platform.audit_values import kind_of, public_id
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.resource.declared_field import settable_fields
from controlplane.policies.document.schema import Path, path_text
from planning.documents.policy_with_automation import AUTOMATION

_EVENTS = 50
"""Number of an object's newest changes among which a field's author is searched."""


@dataclass(frozen=True, slots=True)
class FieldManager:
    """A set of files that manages fields of one object."""

    name: str
    by: str
    """The key or person that applied them."""
    source: str
    """File and line."""
    at: datetime
    fields: tuple[str, ...]
    """Paths of the managed fields, such as weight or document.ttft_slo_s."""

    @override
    def __str__(self) -> str:
        return f"{self.name} ({', '.join(filter(None, (self.by, self.source)))})"


def managers_of(thing: models.Model) -> tuple[FieldManager, ...]:
    """Return the managers of a stored object's fields."""
    kind = next((kind for kind in KINDS if isinstance(thing, kind.resource.model)), None)
    if kind is None:
        return ()
    # Its fixed fields are its name; nothing changes them.
    fixed = kind.resource.created_fields.keys() - settable_fields(type(thing)).keys()
    return tuple(
        FieldManager(row.manager, row.by, row.source, row.applied_at, _names(row, fixed))
        for row in AppliedManifest.objects.filter(kind=kind.name, object_id=public_id(thing))
    )


def _names(row: AppliedManifest, fixed: Collection[str]) -> tuple[str, ...]:
    return tuple(path_text(path) for path in row.values if path[0] not in fixed)


def managers_by_field(thing: models.Model) -> dict[str, str]:
    """Return who manages each managed field of a stored object, in words."""
    return {name: str(manager) for manager in managers_of(thing) for name in manager.fields}


def author_of(thing: models.Model, path: Path, *, before: int) -> str:
    """Return who last changed the field, up to the audit event with this primary key; empty if that is unknown."""
    name = path[0]
    if name == "document":
        name = "automation_document" if path[1:2] == (AUTOMATION,) else "routing_document"
    events = AuditEvent.objects.filter(object_kind=kind_of(thing), object_id=public_id(thing), pk__lte=before)
    for event in events.order_by("-pk")[:_EVENTS]:
        old, new = _values(event.before), _values(event.after)
        if name in new and name in old and old[name] != new[name]:
            return event.actor_name
    return ""


def _values(part: Any) -> Mapping[str, Any]:
    return part if isinstance(part, dict) else {}
