"""Operators unpin prefixes: the node receives the request until it reports without the pin; it is audited once."""

from __future__ import annotations

import pytest

from controlplane.kv_nodes.models.kv_node import KvNode
from controlplane.kv_nodes.unpinning import NoSuchPinError, unpin
from controlplane.platform.models.audit_event import AuditEvent
from tests.controlplane.kv_nodes.node_words import NODES, REPORT, reported, word
from tests.controlplane.platform.api.conftest import shared_world, world
from tests.controlplane.platform.api.world import Api, World

__all__ = ["shared_world", "world"]

pytestmark = pytest.mark.django_db
PIN = {"name": "ab" * 8, "tenant": "acme", "tokens": 4096, "bytes": 1 << 20, "left_s": 1800.0, "tenant_bytes": 1 << 20}
PINNED = {**REPORT, "pins": [PIN], "pin_quota_bytes": 4 << 20}
ASKED = [{"name": PIN["name"], "tenant": "acme"}]


def node(**changes: object) -> KvNode:
    return reported(report=PINNED, **changes)


def verbs() -> list[str]:
    return list(AuditEvent.objects.order_by("pk").values_list("verb", flat=True))


def test_unpin_request_is_repeated_until_the_node_reports_without_the_pin() -> None:
    unpin(node(), PIN["name"], "acme", actor=NODES, why="asked by the tenant")
    assert node().report.unpin == ASKED
    assert node().report.unpin == ASKED
    assert reported().report.unpin == []
    # Pinned again by the tenant: that is another pin.
    assert node().report.unpin == []
    event = AuditEvent.objects.get(verb="kv_node.unpin")
    assert (event.object_id, event.why) == ("kv-1", "asked by the tenant")
    assert event.after == {"prefix": PIN["name"], "tenant": "acme", "tokens": 4096, "bytes": 1 << 20}


def test_repeated_unpin_request_is_audited_once() -> None:
    for _ in range(2):
        unpin(node(), PIN["name"], "acme", actor=NODES)
    assert verbs() == ["kv_node.register", "kv_node.unpin"]
    assert node().report.unpin == ASKED


@pytest.mark.parametrize("changes", [{"name": "0" * 16}, {"tenant": "other"}, {"state": "gone"}])
def test_prefix_without_a_pin_cannot_be_unpinned(changes: dict[str, str]) -> None:
    stored = node(state=changes.get("state", "serving"))
    with pytest.raises(NoSuchPinError):
        unpin(stored, changes.get("name", PIN["name"]), changes.get("tenant", "acme"), actor=NODES)
    assert verbs() == ["kv_node.register"]


def test_operators_unpin_over_the_api_and_the_response_to_the_node_lists_it(world: World) -> None:
    reported("kv-9", report=PINNED)
    body = {"name": PIN["name"], "tenant": "acme", "why": "too large"}
    assert Api(world, "viewer").post("kv_nodes/kv-9/unpin", body).status_code == 403
    answer = Api(world, "operator").post("kv_nodes/kv-9/unpin", body)
    assert (answer.status_code, answer.json()["unpin"]) == (200, ASKED), answer.content
    report = {"name": "kv-9", **word(), "report": PINNED}
    assert Api(world, "operator_key").post("kv_nodes", report).json()["unpin"] == ASKED
    assert Api(world, "operator_key").post("kv_nodes", {**report, "report": REPORT}).json()["unpin"] == []
