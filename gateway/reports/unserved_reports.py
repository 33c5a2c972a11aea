"""Reports requests that wait for the first engine of a pool, so that the scaler starts one at once."""

from __future__ import annotations

import time
from math import inf
from typing import TYPE_CHECKING

from gateway.bus.bus import Bus
from gateway.contracts.unserved_requests import SCALING, TOPIC, WAKE_JOBS, UnservedRequests, encode_unserved

if TYPE_CHECKING:
    from gateway.pools.pool.live_pool import LivePool

EVERY_S = 1.0
"""Minimum interval of reports about one pool, each of which wakes a job."""


class UnservedReports:
    """Reports for one pool. Mutable: the time of the last report."""

    def __init__(self, pool: LivePool, bus: Bus) -> None:
        self._pool, self._bus = pool, bus
        self._reported_s = -inf

    def report(self, now: float) -> None:
        """Publish the number of requests that lack an engine at this monotonic second, and wake the scaler."""
        if now - self._reported_s < EVERY_S:
            return
        self._reported_s = now
        pool_id, cold = self._pool.entry.pool_id, self._pool.router.cold
        # At least the one that called, which may not be in the queue yet.
        requests = max(1, cold.unserved(now))
        value = UnservedRequests(pool_id=pool_id, at=time.time(), requests=requests)
        # Appended in this order, and without an error while the bus is away.
        self._bus.append(TOPIC, encode_unserved(value))
        self._bus.append(WAKE_JOBS, SCALING)
