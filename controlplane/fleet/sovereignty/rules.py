"""Reads and replaces the sovereignty rules. Rejects an inconsistent document and lists its problems."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from controlplane.fleet.models.region import Region
from controlplane.fleet.models.sovereignty import Sovereignty, as_json
from controlplane.platform import recorded_change
from controlplane.platform.actor import Actor
from controlplane.platform.field_problems import FieldProblem, InvalidFieldsError
from controlplane.platform.models.tenant import Tenant
from controlplane.platform.recorded_change import InUseError
from controlplane.platform.role import Role
from controlplane.platform.roles import require
from routing.regions.sovereignty import SovereigntyDocument, problems
from routing.values.prepared_struct import prepared

_PATH = re.compile(r" - at `\$\.?(?P<path>[^`]*)`$")


def stored_sovereignty() -> Sovereignty:
    """Return the stored row or, before the first change, an unsaved one."""
    return Sovereignty.objects.filter(pk=Sovereignty.ONLY).first() or Sovereignty()


def document_in_force() -> SovereigntyDocument:
    """Return the rules in force."""
    return msgspec.convert(stored_sovereignty().document, prepared(SovereigntyDocument))


def checked_document(given: Mapping[str, Any]) -> SovereigntyDocument:
    """Validate the document and return it. Raises InvalidFieldsError with every problem and its path."""
    try:
        document = msgspec.convert(dict(given), prepared(SovereigntyDocument))
    except msgspec.ValidationError as error:
        text = str(error)
        match = _PATH.search(text)
        path = match["path"] if match else ""
        raise InvalidFieldsError([FieldProblem(path, f"{_PATH.sub('', text)}.")]) from error
    regions = set(Region.objects.values_list("slug", flat=True))
    tenants = set(Tenant.objects.values_list("slug", flat=True))
    if faults := problems(document, regions, tenants):
        raise InvalidFieldsError(FieldProblem(item.path, f"{item.message}.") for item in faults)
    return document


def replace_sovereignty(
    row: Sovereignty, given: Mapping[str, Any], *, actor: Actor, expected: int | None = None, why: str = ""
) -> Sovereignty:
    """Replace the rules or the default in all regions. An omitted part is unchanged.

    Raises NotAllowedError, InvalidFieldsError, StaleRevisionError.
    """
    require(actor, Role.ADMIN)
    changes = {"document": as_json(checked_document({**row.document, **given}))}
    # The change locks the stored row, so there must be one.
    Sovereignty.objects.get_or_create(pk=Sovereignty.ONLY)
    return recorded_change.change(row, changes, "sovereignty.change", actor=actor, expected=expected, why=why)


def reject_while_named(name: str, *fields: str) -> None:
    """Raise InUseError if one of these fields of a rule names the region or tenant."""
    naming = [rule.name for rule in document_in_force().rules if any(name in getattr(rule, field) for field in fields)]
    if naming:
        raise InUseError(f"Sovereignty rules name {name}: {', '.join(naming[:3])}; change these first.")
