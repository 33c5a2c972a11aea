"""Adds the counts of routers to the gateway's counters."""

from __future__ import annotations

from gateway.base.metrics import GatewayMetrics
from routing.ledger.router_counts import CountsSeen

AT_ONCE, AFTER_WAITING = "at_once", "after_waiting"
_NOTHING = CountsSeen()


class QueueCounters:
    """Adds the increase since the last sample. Mutable: the last counts per pool."""

    def __init__(self, metrics: GatewayMetrics) -> None:
        self._metrics = metrics
        self._seen: dict[str, CountsSeen] = {}

    def take(self, pool_id: str, counts: CountsSeen) -> None:
        """Add the increase of one pool's counts. Decreased counts belong to a new router and are added completely."""
        before = self._seen.get(pool_id, _NOTHING)
        if counts.dispatched_at_once < before.dispatched_at_once or counts.queued < before.queued:
            before = _NOTHING
        self._seen[pool_id] = counts
        for how, growth in (
            (AT_ONCE, counts.dispatched_at_once - before.dispatched_at_once),
            (AFTER_WAITING, counts.dispatched_after_waiting - before.dispatched_after_waiting),
        ):
            self._metrics.dispatches.inc(pool_id, how, amount=growth)
        self._metrics.migrations.inc(pool_id, amount=counts.migrated - before.migrated)

    def forget(self, pool_id: str) -> None:
        """Remove a pool that left."""
        self._seen.pop(pool_id, None)
