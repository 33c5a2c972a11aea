"""Keeps the newest affinity sample of each gateway."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from functools import cache

from controlplane.platform.bus import get_bus
from gateway.bus.bus import Bus
from gateway.bus.follower_bus import hear_gateways
from gateway.contracts.affinity_sample import TOPIC, AffinitySample, PoolAffinity, decode_affinity
from gateway.contracts.wire import UnreadableMessageError

MAX_AGE_S = 15.0
"""An older sample says nothing about now; samples come every two seconds."""
MAX_GATEWAYS = 64

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PoolWord:
    """What one gateway said last of a pool."""

    pool: PoolAffinity
    at: float
    """Unix seconds."""
    gateway: str
    """Empty: the one of this process."""
    gateways: int
    """That were heard of lately, this one among them."""


class AffinityHearing:
    """Thread-safe; samples come in the publisher's thread. Mutable state: the newest sample of each gateway."""

    def __init__(self, bus: Bus) -> None:
        self._lock = threading.Lock()
        self._samples: dict[str, AffinitySample] = {}
        self.stop = hear_gateways(bus, TOPIC, self._hear)
        """Call it to hear no more."""

    def of(self, pool_id: str, now: float) -> PoolWord | None:
        """Return the word of the gateway that had most of the pool's requests; None where none was heard lately.

        `now` is unix seconds.
        """
        with self._lock:
            samples = dict(self._samples)
        words = [
            (pool, sample.at, name)
            for name, sample in samples.items()
            if now - sample.at <= MAX_AGE_S
            for pool in sample.pools
            if pool.pool_id == pool_id
        ]
        if not words:
            return None
        pool, at, name = max(words, key=lambda each: (each[0].requests, each[2]))
        return PoolWord(pool, at, name, len(words))

    def _hear(self, gateway: str, value: bytes) -> None:
        try:
            sample = decode_affinity(value)
        except UnreadableMessageError as error:
            logger.warning("an affinity sample was dropped: %s", error)
            return
        with self._lock:
            if gateway not in self._samples and len(self._samples) >= MAX_GATEWAYS:
                oldest = min(self._samples, key=lambda name: self._samples[name].at)
                del self._samples[oldest]
            self._samples[gateway] = sample


@cache
def affinity_hearing() -> AffinityHearing:
    """Return this process's hearing, following the control plane's bus."""
    return AffinityHearing(get_bus())
