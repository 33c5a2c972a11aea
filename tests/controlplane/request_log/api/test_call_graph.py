"""The call graph over REST: read, replaced as a whole, rejected with reasons, and sent to gateways."""

from __future__ import annotations

import pytest

from controlplane.platform.models.audit_event import AuditEvent
from controlplane.publication.snapshot import build_snapshot
from routing.advisories.call_graph import NextAgent
from tests.controlplane.platform.api.world import Api, World

pytestmark = pytest.mark.django_db
PATH = "call_graph"
GRAPH = {"engineer": [{"agent": "reviewer", "probability": 0.7, "after_s": 5.8}], "reviewer": []}


def test_a_changed_graph_is_in_the_next_snapshot(api: Api) -> None:
    assert api.get(PATH).json() == {"agents": {}, "revision": 1}
    before = build_snapshot(0.0)
    assert before.call_graph.agents == {}
    answer = api.change("PUT", PATH, {"agents": GRAPH, "why": "measured"})
    assert answer.status_code == 200, answer.content
    assert answer.json() == {"agents": GRAPH, "revision": 2}
    snapshot = build_snapshot(0.0)
    assert snapshot.version > before.version
    assert snapshot.call_graph.agents["engineer"] == (NextAgent("reviewer", 0.7, 5.8),)
    assert AuditEvent.objects.get(verb="call_graph.change").why == "measured"


@pytest.mark.parametrize(
    "agents",
    [
        {"a": [{"agent": "b", "probability": 1.5, "after_s": 1}]},
        {"a": [{"agent": "b", "probability": 0.5}]},
        {"a": "b"},
        {"a": [{"agent": "b", "probability": 0.1, "after_s": 1}] * 9},
    ],
    ids=["share", "no time", "no list", "too many"],
)
def test_an_invalid_graph_is_rejected(api: Api, agents: object) -> None:
    answer = api.change("PUT", PATH, {"agents": agents})
    assert answer.status_code == 400, answer.content
    assert build_snapshot(0.0).call_graph.agents == {}


def test_only_admins_change_the_graph(world: World) -> None:
    assert Api(world, "operator").change("PUT", PATH, {"agents": GRAPH}).status_code == 403
