"""A complete policy document: the routing settings and `automation`, each with a separate schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planning.documents import automation_document
from routing.policy import policy_document

AUTOMATION = "automation"


def routing_half(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the routing half of a policy."""
    return {name: document[name] for name in document if name != AUTOMATION}


def upgraded(document: Any) -> Any:
    """Return a whole policy, or only its routing half, in the current schemas. Raises SchemaError.

    A value that is not an object is returned unchanged: validation reports it.
    """
    if not isinstance(document, dict):
        return document
    routing = policy_document.ROUTING_SCHEMA.upgraded(routing_half(document))
    if AUTOMATION not in document:
        return routing
    return {**routing, AUTOMATION: upgraded_automation(document[AUTOMATION])}


def upgrade_notes(document: Mapping[str, Any]) -> list[str]:
    """Return how upgrading a whole policy changes its effect, as sentences."""
    automation = document.get(AUTOMATION)
    notes = policy_document.ROUTING_SCHEMA.upgrade_notes(document)
    if isinstance(automation, dict):
        notes += automation_document.AUTOMATION_SCHEMA.upgrade_notes(automation)
    return notes


def upgraded_automation(document: Any) -> Any:
    """Return an automation document in the current schema. Raises SchemaError."""
    return automation_document.AUTOMATION_SCHEMA.upgraded(document) if isinstance(document, dict) else document
