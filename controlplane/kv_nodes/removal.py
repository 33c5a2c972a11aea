"""Deletes node managers that are gone."""

from __future__ import annotations

from controlplane.kv_nodes.models.kv_node import LIVE, KvNode
from controlplane.platform import recorded_change
from controlplane.platform.actor import Actor
from controlplane.platform.recorded_change import InUseError
from controlplane.platform.role import Role
from controlplane.platform.roles import require


def delete_kv_node(node: KvNode, *, actor: Actor, expected: int | None = None, why: str = "") -> None:
    """Forget a node that is gone or silent.

    Raises NotAllowedError, StaleRevisionError, and InUseError for a node that reports: it would be back at once.
    """
    require(actor, Role.OPERATOR)
    if node.state in LIVE:
        raise InUseError(f"KV node {node} is {node.get_state_display().lower()}; stop it first.")
    recorded_change.delete(node, "kv_node.delete", actor=actor, expected=expected, why=why)
