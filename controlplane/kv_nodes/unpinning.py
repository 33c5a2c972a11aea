"""Ends pins on node managers.

The response to a node's next report lists the ended pins. Therefore the control plane does not need the secret that
gives access to blocks.
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
    """The pin has already ended, or its node does not report."""


def pin_of(pin: Mapping[str, Any]) -> tuple[str, str]:
    """Return the identity of a pin on a node."""
    return str(pin["name"]), str(pin["tenant"])


def unpin(node: KvNode, name: str, tenant: str, *, actor: Actor, why: str = "") -> KvNode:
    """End a pin, so that the node can evict the prefix like other blocks. Idempotent.

    Raises NotAllowedError, and NoSuchPinError if the node's last report does not contain the pin.
    """
    require(actor, Role.OPERATOR)
    with transaction.atomic():
        # A report of the node takes the same lock, so that neither overwrites the other.
        node = KvNode.objects.select_for_update().get(pk=node.pk)
        if node.state not in LIVE:
            raise NoSuchPinError(f"KV node {node} is {node.get_state_display().lower()}; its pins expire on schedule.")
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
