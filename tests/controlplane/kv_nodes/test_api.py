from __future__ import annotations

import pytest

from controlplane.kv_nodes.models.kv_node import KvNode
from tests.controlplane.kv_nodes.node_words import REPORT, word
from tests.controlplane.kv_nodes.some_orders import row, store_orders
from tests.controlplane.platform.api.conftest import shared_world, world
from tests.controlplane.platform.api.world import Api, World

__all__ = ["shared_world", "world"]

pytestmark = pytest.mark.django_db


def test_report_of_a_node_is_shown(world: World) -> None:
    report = {"name": "kv-9", **word(), "report": REPORT}
    answer = Api(world, "operator_key").post("kv_nodes", report)
    assert answer.status_code == 200, answer.content
    shown = Api(world, "viewer").get("kv_nodes/kv-9").json()
    assert (shown["state"], shown["report"]["misses"], shown["report"]["tiers"][0]["hits"]) == ("serving", 2, 5)
    assert shown["received_at"]
    again = Api(world, "operator_key").post("kv_nodes", report)
    assert again.json()["revision"] == shown["revision"]


def test_report_of_an_earlier_incarnation_is_a_conflict(world: World) -> None:
    Api(world).post("kv_nodes", {"name": "kv-9", **word(incarnation=5)})
    assert Api(world).post("kv_nodes", {"name": "kv-9", **word(incarnation=4)}).status_code == 409


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        ("http://127.0.0.1:8472/metrics", "http://127.0.0.1:8472/metrics"),
        ("http://kv-9.nodes.example:8472/metrics", "http://kv-9.nodes.example:8472/metrics"),
        ("javascript:alert(1)", ""),
        ("http://169.254.169.254/latest", ""),
        ("http://192.0.2.1:8472/metrics", ""),
        ("", ""),
    ],
)
def test_stored_metrics_address_that_is_not_allowed_is_hidden(world: World, stored: str, shown: str) -> None:
    Api(world).post("kv_nodes", {"name": "kv-9", **word(metrics_url="http://127.0.0.1:8472/metrics")})
    KvNode.objects.filter(name="kv-9").update(metrics_url=stored)
    assert Api(world, "viewer").get("kv_nodes/kv-9").json()["metrics_url"] == shown


def test_invalid_report_is_rejected(world: World) -> None:
    for wrong in ({"state": "silent"}, {"secret": "x"}, {"incarnation": -1}, {"name": "a b"}, {"address": "nowhere"}):
        answer = Api(world).post("kv_nodes", {"name": "kv-9", **word(), **wrong})
        assert answer.status_code == 400, (wrong, answer.content)


def test_node_of_an_engine_is_set_and_published(world: World) -> None:
    etag = Api(world).get("engines/e-a")["ETag"]
    answer = Api(world).call("PATCH", "engines/e-a", {"kv_node": "kv-a"}, If_Match=etag)
    assert answer.json()["kv_node"] == "kv-a", answer.content
    operation = {"op": "register", "pool": "pool-a", "name": "e-c", "url": "http://10.0.1.7:8000", "kv_node": "kv-a"}
    bulk = Api(world).post("engines/bulk", {"operations": [operation]})
    assert bulk.json()["results"][0]["after"]["kv_node"] == "kv-a", bulk.content
    wrong = Api(world).post("engines/bulk", {"operations": [{**operation, "name": "e-d", "kv_node": "a b"}]})
    assert wrong.status_code == 400


def test_orders_are_listed_and_filtered(world: World) -> None:
    store_orders(row(), row("o-2", planner="replicate", worth="useless"), row("o-3", target="kv-9", outcome="late"))
    shown = Api(world, "viewer").get("kv_moves").json()["results"]
    assert [item["order_id"] for item in shown] == ["o-3", "o-2", "o-1"]
    assert (shown[2]["planner"], shown[2]["blocks"], shown[2]["outcome"]) == ("prefetch", 64, "moved")
    for query, listed in (
        ("worth=useless", ["o-2"]),
        ("target=kv-9", ["o-3"]),
        ("outcome=moved&ordering=asked_at", ["o-1", "o-2"]),
        ("after=2030-01-01T00:00:00Z", []),
    ):
        narrowed = Api(world, "viewer").get(f"kv_moves?{query}").json()["results"]
        assert [item["order_id"] for item in narrowed] == listed, query
    assert Api(world, "viewer").get("kv_moves?planner=nobody").status_code == 400
