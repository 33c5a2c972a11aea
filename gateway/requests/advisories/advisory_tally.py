"""Counts advisories per source and sessions' requests per pool, for metrics and the console."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from gateway.base.metrics import GatewayMetrics
from gateway.contracts.advisory import AdvisoryTallies, PoolTally, SourceTally
from planning.kv_moves.planner_trust import PlannerTrust

MAX_SOURCES = 2000
"""Limit of counted sources. Beyond it, a pool's further sources are counted together."""
OTHERS = "others"


class AdvisoryTally:
    """Counts of advisories. Mutable: both tables, since the gateway started."""

    def __init__(self, metrics: GatewayMetrics, gateway: str) -> None:
        self._metrics, self._gateway, self._since = metrics, gateway, time.time()
        self._sources: dict[tuple[str, str, str], SourceTally] = {}
        self._pools: dict[str, PoolTally] = {}

    def pool(self, pool_id: str) -> PoolTally:
        """Return a pool's counts."""
        tally = self._pools.get(pool_id)
        if tally is None:
            tally = self._pools[pool_id] = PoolTally(pool_id)
        return tally

    def source(self, pool_id: str, tenant_id: str, source: str) -> SourceTally:
        """Return a source's counts in one pool."""
        name = pool_id, tenant_id, source
        tally = self._sources.get(name)
        if tally is None:
            if len(self._sources) >= MAX_SOURCES:
                name = pool_id, OTHERS, OTHERS
            tally = self._sources.setdefault(name, SourceTally(*name))
        return tally

    def count(self, pool_id: str, tenant_id: str, source: str, outcome: str) -> None:
        """Count the outcome of an advisory."""
        tally = self.source(pool_id, tenant_id, source)
        # A new dict: the copies that `tallies` gives out share the old one.
        tally.outcomes = {**tally.outcomes, outcome: tally.outcomes.get(outcome, 0) + 1}
        self._metrics.advisories.inc(pool_id, outcome)

    def tallies(self, trust: Callable[[str, str], PlannerTrust]) -> AdvisoryTallies:
        """Return all counts, with the current trust in each tenant's sources."""
        for tally in self._sources.values():
            believed = trust(tally.tenant_id, tally.source)
            tally.useful_share, tally.backs_off = believed.useful_share, believed.backs_off
        return AdvisoryTallies(
            self._gateway,
            self._since,
            time.time(),
            [msgspec.structs.replace(source) for source in self._sources.values()],
            [msgspec.structs.replace(pool) for pool in self._pools.values()],
        )
