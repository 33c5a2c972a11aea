"""The complete policy document: routing settings and, under `automation`, automation settings."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from planning.documents.automation_document import AutomationPolicy
from planning.documents.policy_with_automation import AUTOMATION
from routing.policy.policy_document import RoutingPolicy


class WholePolicy(RoutingPolicy, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Routing settings and automations of one pool."""

    automation: Annotated[
        AutomationPolicy,
        Meta(title="Automation", description="Which automations manage the pool, and within which limits."),
    ] = AutomationPolicy()


def halves(policy: WholePolicy) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the complete routing and automation documents, as stored in two columns."""
    document: dict[str, Any] = msgspec.to_builtins(policy)
    return document, document.pop(AUTOMATION)
