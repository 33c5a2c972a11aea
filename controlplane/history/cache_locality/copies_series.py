"""Copies of hot prefixes on node managers per minute (Mooncake Fig. 18), in memory since this process began."""

from __future__ import annotations

from collections import OrderedDict

from gateway.contracts.cache_locality_sample import CacheLocalitySample

MINUTES = 60
MAX_SERIES = 1024
"""Limit of prefixes with a series. The one that was reported last the longest ago is dropped first."""


class CopiesSeries:
    """Copies per prefix and minute. Mutable: (pool, prefix) → minute → most copies in it, last reported last."""

    def __init__(self) -> None:
        self._series: OrderedDict[tuple[str, str], dict[int, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._series)

    def note(self, sample: CacheLocalitySample) -> None:
        """Count the nodes that hold each prefix of a sample."""
        minute = int(sample.at // 60)
        for pool in sample.pools:
            for prefix in pool.prefixes:
                copies = len({*prefix.dram_nodes, *prefix.ssd_nodes})
                series = self._series.setdefault((pool.pool_id, prefix.key), {})
                self._series.move_to_end((pool.pool_id, prefix.key))
                series[minute] = max(copies, series.get(minute, 0))
                for old in [item for item in series if item <= minute - MINUTES]:
                    del series[old]
        while len(self._series) > MAX_SERIES:
            self._series.popitem(last=False)

    def of(self, pool_id: str, key: str, now: float) -> tuple[int | None, ...]:
        """Return the copies in each of the last MINUTES minutes, the current one last; None: not reported."""
        series, minute = self._series.get((pool_id, key), {}), int(now // 60)
        return tuple(series.get(item) for item in range(minute - MINUTES + 1, minute + 1))
