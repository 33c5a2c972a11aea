"""KV orders reported by gateways are stored once, in limited number, and shown to people who may see nodes.

Operators unpin prefixes: the node receives the request until it reports without the pin; it is audited once.
"""

from __future__ import annotations

import pytest
from django.db import DatabaseError

from controlplane.kv_nodes import moves as orders
from controlplane.kv_nodes.models.kv_move import KvMoveRecord
from controlplane.kv_nodes.models.kv_node import KvNode
from controlplane.kv_nodes.unpinning import NoSuchPinError, unpin
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.stream_intake import StreamIntake
from gateway.bus.bus import InProcessBus
from gateway.contracts.kv_move import MAX_ROWS, TOPIC, decode_orders, encode_orders
from gateway.contracts.wire import UnreadableMessageError
from tests.controlplane.kv_nodes.node_words import NODES, REPORT, reported, word
from tests.controlplane.kv_nodes.some_orders import row, store_orders
from tests.controlplane.platform.api.conftest import shared_world, world
from tests.controlplane.platform.api.world import Api, World

pytestmark = pytest.mark.django_db


def test_later_row_of_an_order_replaces_an_earlier_one() -> None:
    assert store_orders(row(), row("o-2", planner="replicate")) == 2
    assert store_orders(row(loads=2, saved_tokens=2048, worth="useful")) == 1
    order = KvMoveRecord.objects.get(order_id="o-1")
    assert (order.loads, order.saved_tokens, order.worth, order.bytes) == (2, 2048, "useful", 64 << 10)
    assert KvMoveRecord.objects.count() == 2


def test_newest_orders_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders, "MAX_KEPT", 3)
    for number in range(5):
        store_orders(row(f"o-{number}", asked_at=1_800_000_000.0 + number))
    assert sorted(KvMoveRecord.objects.values_list("order_id", flat=True)) == ["o-2", "o-3", "o-4"]


def test_orders_that_cannot_be_stored_now_are_stored_later(monkeypatch: pytest.MonkeyPatch) -> None:
    bus = InProcessBus()
    intake = StreamIntake(bus, TOPIC)
    bus.append(TOPIC, encode_orders([row()]))

    def fails(_rows: object) -> None:
        raise DatabaseError("locked")

    with monkeypatch.context() as broken:
        broken.setattr(orders, "_store", fails)
        with pytest.raises(DatabaseError):
            orders.keep_orders(intake)
    assert orders.keep_orders(intake) == 1
    assert KvMoveRecord.objects.count() == 1
    assert orders.keep_orders(intake) == 0


def test_invalid_message_does_not_affect_others() -> None:
    bus = InProcessBus()
    intake = StreamIntake(bus, TOPIC)
    bus.append(TOPIC, b"\x00nonsense")
    bus.append(TOPIC, encode_orders([row()]))
    assert orders.keep_orders(intake) == 1


@pytest.mark.parametrize(
    "rows",
    [
        [row(seconds=float("nan"))],
        [row(asked_at=float("inf"))],
        [row(seconds=-1.0)],
        [row(asked_at=1e300)],
        [row(asked_at=-1.0)],
        [row(outcome="perhaps")],
        [row(blocks=-1)],
        [row(source="")],
        [row(str(number)) for number in range(MAX_ROWS + 1)],
    ],
)
def test_rows_out_of_range_are_rejected(rows: list[object]) -> None:
    with pytest.raises(UnreadableMessageError):
        decode_orders(encode_orders(rows))  # type: ignore[arg-type]


__all__ = ["shared_world", "world"]

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
