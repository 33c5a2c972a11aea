"""Reports the results of orders that moved KV blocks to the control plane.

What an order cost and saved: gateway/contracts/kv_order.py; counted in gateway/kv_orders/order_book.py.
"""

from __future__ import annotations

import asyncio

from gateway.bus.bus import Bus
from gateway.contracts.kv_order import MAX_ROWS, TOPIC, encode_orders
from gateway.kv_orders.kv_orders import KvOrders

INTERVAL_S = 1.0


class KvOrderReports:
    """Tells every interval the rows that are new or changed; a row that is lost leaves an older one of its order."""

    def __init__(self, bus: Bus, orders: KvOrders, interval_s: float = INTERVAL_S) -> None:
        self._bus, self._orders, self._interval_s = bus, orders, interval_s

    async def run(self) -> None:
        """Judge and tell every interval, until cancelled."""
        while True:
            await asyncio.sleep(self._interval_s)
            self._orders.sweep()
            self.tell()

    def tell(self) -> None:
        """Tell what changed since the last time, MAX_ROWS at most."""
        rows = self._orders.book.take_rows(MAX_ROWS)
        if rows:
            self._bus.append(TOPIC, encode_orders(rows))
