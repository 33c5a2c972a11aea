"""Which fields of an object files manage, and who last changed a field otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import models

from controlplane.manifests.models.applied_manifest import AppliedManifest
from controlplane.platform.audit_values import kind_of, public_id
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.policies.document.schema import Path
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
    fields: frozenset[str]
    """Names of the managed fields; of a document, its name."""


def managers_of(kind: str, thing: models.Model) -> tuple[FieldManager, ...]:
    """Return the managers of an object's fields."""
    rows = AppliedManifest.objects.filter(kind=kind, object_id=public_id(thing))
    return tuple(
        FieldManager(row.manager, row.by, row.source, row.applied_at, frozenset(path[0] for path in row.values))
        for row in rows
    )


def managed_fields(managers: Iterable[FieldManager]) -> frozenset[str]:
    """Return the names of the fields that any of them manages."""
    return frozenset(name for manager in managers for name in manager.fields)


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
