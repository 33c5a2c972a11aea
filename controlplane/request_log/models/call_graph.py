"""The call graph of agents in force."""

from __future__ import annotations

from django.db import models
from typing_extensions import override

from controlplane.platform.revisions import RevisedModel


class StoredCallGraph(RevisedModel):
    """The only row, which holds the graph (routing.advisories.call_graph). Without it, no agent is known."""

    ONLY = 1
    public_id_field = "name"
    name = "agents"
    in_snapshot = True

    id = models.PositiveSmallIntegerField(primary_key=True, default=ONLY)
    agents = models.JSONField(default=dict)
    """Agent → its next agents, most probable first."""

    class Meta:
        constraints = (models.CheckConstraint(condition=models.Q(id=1), name="call_graph_one_row"),)
        verbose_name = "call graph"
        verbose_name_plural = "call graphs"

    @override
    def __str__(self) -> str:
        return "call graph of agents"
