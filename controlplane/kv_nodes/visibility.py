"""Node managers belong to no pool: only people with a role everywhere see them."""

from __future__ import annotations

from django.db.models import QuerySet

from controlplane.kv_nodes.models.kv_node import KvNode
from controlplane.platform.actor import Actor
from controlplane.platform.role import Role
from controlplane.platform.roles import may


def visible_kv_nodes(actor: Actor) -> QuerySet[KvNode]:
    """Return the nodes the actor may see, with their reports."""
    nodes = KvNode.objects.select_related("report")
    return nodes if may(actor, Role.VIEWER) else nodes.none()
