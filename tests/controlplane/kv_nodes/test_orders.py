"""KV orders reported by gateways are stored once, in limited number, and shown to people who may see nodes."""

from __future__ import annotations

import pytest
from django.db import DatabaseError

from controlplane.kv_nodes import moves as orders
from controlplane.kv_nodes.models.kv_move import KvMoveRecord
from controlplane.platform.stream_intake import StreamIntake
from gateway.bus.bus import InProcessBus
from gateway.contracts.kv_move import MAX_ROWS, TOPIC, decode_orders, encode_orders
from gateway.contracts.wire import UnreadableMessageError
from tests.controlplane.kv_nodes.some_orders import row, store_orders

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
