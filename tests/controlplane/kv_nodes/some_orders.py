"""Rows of KV orders, for tests."""

from __future__ import annotations

from typing import Any

from controlplane.kv_nodes.moves import keep_orders
from controlplane.platform.stream_intake import StreamIntake
from gateway.bus.bus import InProcessBus
from gateway.contracts.kv_move import TOPIC, KvMoveRow, encode_orders


def row(order_id: str = "o-1", **fields: Any) -> KvMoveRow:
    """Return the row of a KV order with these changes."""
    return KvMoveRow(
        **{
            "order_id": order_id,
            "asked_at": 1_800_000_000.0,
            "pool_id": "pool-0",
            "planner": "prefetch",
            "source": "kv-1",
            "target": "kv-2",
            "asked_blocks": 64,
            "blocks": 64,
            "bytes": 64 << 10,
            "seconds": 0.012,
            "outcome": "moved",
            **fields,
        }
    )


def store_orders(*rows: KvMoveRow) -> int:
    """Publish orders as a gateway does, and store them."""
    bus = InProcessBus()
    intake = StreamIntake(bus, TOPIC)
    bus.append(TOPIC, encode_orders(list(rows)))
    return keep_orders(intake)
