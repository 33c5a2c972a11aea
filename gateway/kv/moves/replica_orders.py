"""Follows operators' orders to change the number of copies of a prefix."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from gateway.base.event_log import log_event
from gateway.contracts.kv_move import decode_replicas
from gateway.contracts.wire import UnreadableMessageError

GOOD_S = 30.0
"""An order that arrives later than this is ignored."""


class ReplicatedPool(Protocol):
    """A pool whose prefixes have copies on nodes."""

    def set_copies(self, prefix: int, copies: int, now: float) -> int:
        """Order the moves after which so many nodes hold a prefix; return their number."""


class ReplicaOrders:
    """Applies each order once. Mutable: pool → time of its last order."""

    def __init__(self, pools: Mapping[str, ReplicatedPool], wall: Callable[[], float] = time.time) -> None:
        self._pools, self._wall = pools, wall
        self._last: dict[str, float] = {}

    def take(self, value: bytes) -> None:
        """Apply an order from the bus, unless it is old or was applied already."""
        try:
            order = decode_replicas(value)
        except UnreadableMessageError as error:
            log_event("replica_order_rejected", level=logging.WARNING, reason=str(error))
            return
        pool, last = self._pools.get(order.pool_id), self._last.get(order.pool_id, 0.0)
        if pool is None or order.at <= last or self._wall() - order.at > GOOD_S:
            return
        self._last[order.pool_id] = order.at
        moves = pool.set_copies(int(order.prefix, 16), order.copies, time.monotonic())
        log_event("replicas_ordered", pool_id=order.pool_id, prefix=order.prefix, copies=order.copies, moves=moves)
