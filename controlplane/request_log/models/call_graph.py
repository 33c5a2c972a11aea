"""The call graph of agents in force."""

from __future__ import annotations

import msgspec
from django.db import models
from typing_extensions import override

from controlplane.platform.revisions import RevisedModel
from routing.advisories.call_graph import CallGraph
from routing.values.prepared_struct import prepared


class StoredCallGraph(RevisedModel):
    """The only row, which holds the graph (routing.advisories.call_graph). Without it, no agent is known."""

    ONLY = 1
    public_id_field = "name"
    name = "agents"
    in_snapshot = True

    id = models.PositiveSmallIntegerField(primary_key=True, default=ONLY)
    agents = models.JSONField(default=dict, blank=True)
    """Agent → its next agents, most probable first."""

    class Meta:
        constraints = (models.CheckConstraint(condition=models.Q(id=1), name="call_graph_one_row"),)
        verbose_name = "call graph"
        verbose_name_plural = "call graphs"

    @override
    def __str__(self) -> str:
        return "call graph of agents"


def stored_call_graph() -> StoredCallGraph:
    """Return the stored row or, before the first change, an unsaved one."""
    return StoredCallGraph.objects.filter(pk=StoredCallGraph.ONLY).first() or StoredCallGraph()


def graph_in_force() -> CallGraph:
    """Return the graph in force."""
    return msgspec.convert({"agents": stored_call_graph().agents}, prepared(CallGraph))
