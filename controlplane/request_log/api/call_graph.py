"""`/api/v1/call_graph`."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from typing_extensions import override

from controlplane.platform.api.strict_fields import ChangeBody
from controlplane.platform.api.views import Changeable, by_method
from controlplane.platform.role import Role
from controlplane.request_log.call_graph import replace_call_graph
from controlplane.request_log.models.call_graph import StoredCallGraph, stored_call_graph

_AGENTS = "Agent → its next agents, each with `agent`, `probability` (its share of the calls), and `after_s`."


class CallGraphShape(serializers.Serializer):
    """The graph in force."""

    agents = serializers.DictField(help_text=_AGENTS)
    revision = serializers.IntegerField()


class CallGraphChange(ChangeBody):
    """The whole graph."""

    agents = serializers.DictField(help_text=_AGENTS)


class CallGraphView(Changeable):
    """Which agents call which, and how soon. Gateways create advisories by it (SYMPHONY §3.5)."""

    noun = "call graph"
    shape = CallGraphShape
    changed = staticmethod(replace_call_graph)
    bodies = by_method(PUT=CallGraphChange, PATCH=CallGraphChange)
    changes_need = Role.ADMIN
    whole_fleet = True

    @override
    def thing(self, *_args: Any, **_names: Any) -> StoredCallGraph:
        """Return the only graph."""
        return stored_call_graph()
