"""Ends pins on node managers. A node learns of it with the answer to its next report, so that the control plane does
not need the secret with which blocks can be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import transaction

from controlplane.kv_nodes.models.kv_node import LIVE, KvNode, KvNodeReport
from controlplane.platform import audit
from controlplane.platform.actor import Actor
from controlplane.platform.conflict import ConflictError
from controlplane.platform.role import Role
from controlplane.platform.roles import require

_AUDITED = ("tenant", "tokens", "bytes")


class NoSuchPinError(ConflictError):
    """The pin has ended, or its node does not report."""


def pin_of(pin: Mapping[str, Any]) -> tuple[str, str]:
    """Return what identifies a pin on a node."""
    return str(pin["name"]), str(pin["tenant"])


def unpin(node: KvNode, name: str, tenant: str, *, actor: Actor, why: str = "") -> KvNode:
    """Have a node keep a pinned prefix no longer than other blocks; repeating it is harmless.

    Raises NotAllowedError, and NoSuchPinError for a pin that the node's last report does not have.
    """
    require(actor, Role.OPERATOR)
    with transaction.atomic():
        # A report of the node takes the same lock, so that neither overwrites the other.
        node = KvNode.objects.select_for_update().get(pk=node.pk)
        if node.state not in LIVE:
            raise NoSuchPinError(f"KV node {node} is {node.get_state_display().lower()}; its pins end at their time.")
        report = KvNodeReport.objects.filter(node=node).first()
        pins = report.content.get("pins", ()) if report is not None else ()
        pinned = next((pin for pin in pins if pin_of(pin) == (name, tenant)), None)
        if report is None or pinned is None:
            raise NoSuchPinError(f"KV node {node} has no such pin any more.")
        if (name, tenant) not in map(pin_of, report.unpin):
            report.unpin = [*report.unpin, {"name": name, "tenant": tenant}]
            report.save(update_fields=["unpin"])
            after = {"prefix": name, **{item: pinned[item] for item in _AUDITED}}
            audit.record_for(actor, "kv_node.unpin", node, after=after, why=why)
    node.report = report
    return node
