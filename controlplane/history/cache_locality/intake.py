"""Stores the newest cache locality sample of each gateway."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from functools import cache

from controlplane.history.cache_locality.copies_series import CopiesSeries
from controlplane.platform.bus import get_bus
from gateway.bus.bus import Bus
from gateway.bus.follower_bus import subscribe_to_gateways
from gateway.contracts.cache_locality_sample import TOPIC, CacheLocalitySample, PoolCacheLocality, decode_cache_locality
from gateway.contracts.wire import UnreadableMessageError

MAX_AGE_S = 15.0
"""Maximum age of a sample. Samples arrive every two seconds."""
MAX_GATEWAYS = 64

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PoolCacheReport:
    """One gateway's last report about a pool."""

    pool: PoolCacheLocality
    at: float
    """Unix seconds."""
    gateway: str
    """Name of the gateway; empty: this process's gateway."""
    gateways: int
    """Number of gateways with recent reports, including this one."""


class CacheLocalityIntake:
    """Stores samples.

    Thread-safe: they arrive in the publisher's thread. Mutable state: the newest sample of each gateway, and the copies
    of prefixes over the last hour.
    """

    def __init__(self, bus: Bus) -> None:
        self._lock = threading.Lock()
        self._samples: dict[str, CacheLocalitySample] = {}
        self._copies = CopiesSeries()
        self.stop = subscribe_to_gateways(bus, TOPIC, self._receive)
        """Call this to unsubscribe."""

    def of(self, pool_id: str, now: float) -> PoolCacheReport | None:
        """Return the report of the gateway with the most requests of the pool; None without a recent report.

        `now` is unix seconds.
        """
        with self._lock:
            samples = dict(self._samples)
        reports = [
            (pool, sample.at, name)
            for name, sample in samples.items()
            if now - sample.at <= MAX_AGE_S
            for pool in sample.pools
            if pool.pool_id == pool_id
        ]
        if not reports:
            return None
        pool, at, name = max(reports, key=lambda report: (report[0].requests, report[2]))
        return PoolCacheReport(pool, at, name, len(reports))

    def copies(self, pool_id: str, key: str, now: float) -> tuple[int | None, ...]:
        """Return a prefix's copies in each minute of the last hour, the current one last; None: not reported."""
        with self._lock:
            return self._copies.of(pool_id, key, now)

    def _receive(self, gateway: str, value: bytes) -> None:
        try:
            sample = decode_cache_locality(value)
        except UnreadableMessageError as error:
            logger.warning("a cache locality sample was dropped: %s", error)
            return
        with self._lock:
            if gateway not in self._samples and len(self._samples) >= MAX_GATEWAYS:
                oldest = min(self._samples, key=lambda name: self._samples[name].at)
                del self._samples[oldest]
            self._samples[gateway] = sample
            self._copies.note(sample)


@cache
def cache_locality_intake() -> CacheLocalityIntake:
    """Return this process's CacheLocalityIntake, which follows the control plane's bus."""
    return CacheLocalityIntake(get_bus())
