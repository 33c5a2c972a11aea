"""Reads policy documents of the previous schema, from any source.

Stored versions, files, and requests are upgraded on reading and never rewritten. New versions (drafts, rollbacks) are
written in the current schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from controlplane.policies.models.policy_version import PolicyVersion
from planning.documents import automation_document
from planning.documents.automation_document import AutomationPolicy
from planning.documents.policy_with_automation import routing_half, upgrade_notes
from routing.live_policy import as_live, without_fixed
from routing.policy import policy_document
from routing.policy.policy_document import RoutingPolicy
from routing.policy.schema_versions import FIELD, SchemaError, SchemaLine
from routing.values.prepared_struct import prepared


def routing_of(version: PolicyVersion) -> RoutingPolicy:
    """Return the routing policy of the version's document. Raises SchemaError and msgspec.ValidationError."""
    document = _read(version, policy_document.ROUTING_SCHEMA, version.routing_document)
    return without_fixed(msgspec.convert(document, prepared(RoutingPolicy)))


def live_routing_of(version: PolicyVersion) -> RoutingPolicy:
    """Return the routing policy of pools that follow the version. Raises the same errors as routing_of."""
    return as_live(routing_of(version))[0]


def deviation_note(document: Mapping[str, Any]) -> str:
    """Return how pools deviate from a whole policy as written, in sentences; empty if they do not."""
    try:
        routing = policy_document.ROUTING_SCHEMA.upgraded(routing_half(document))
        said = as_live(msgspec.convert(routing, prepared(RoutingPolicy)))[1]
    except (SchemaError, msgspec.ValidationError):
        return ""
    return " ".join([*upgrade_notes(document), *([said] if said else [])])


def automation_of(version: PolicyVersion) -> AutomationPolicy:
    """Return the version's automation policy. Raises the same errors as routing_of."""
    document = _read(version, automation_document.AUTOMATION_SCHEMA, version.automation_document)
    return msgspec.convert(document, prepared(AutomationPolicy))


def reading_problem(version: PolicyVersion) -> str:
    """Return why this program cannot run the version; empty if it can."""
    try:
        routing_of(version)
        automation_of(version)
    except (SchemaError, msgspec.ValidationError) as error:
        return str(error)
    return ""


def _read(version: PolicyVersion, line: SchemaLine, document: dict[str, Any]) -> dict[str, Any]:
    try:
        return line.upgraded(document)
    except SchemaError as error:
        raise SchemaError(f"{version} cannot be read: {FIELD} {error}") from error
