"""Metric of the time since background jobs were last woken, because stopped jobs cannot report that they stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from gateway.bus.bus import Bus

TOPIC = "jobs_woken"
"""Stream topic with one empty entry per second while jobs are woken."""
NAME = "headway_jobs_wake_up_age_seconds"


class WakeUpAge(Collector):
    """Exports the age of the last wake-up on the bus. Mutable: the time of the last wake-up."""

    def __init__(self, registry: CollectorRegistry, bus: Bus, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._woken_s = clock()
        bus.subscribe(TOPIC, self._receive)
        registry.register(self)

    @override
    def collect(self) -> Iterable[Metric]:
        """Yield the age of the last wake-up, or of this process before the first one."""
        text = "Seconds since a background job was woken; grows while no worker or scheduler runs."
        yield GaugeMetricFamily(NAME, text, self._clock() - self._woken_s)

    def _receive(self, _topic: str, _value: bytes) -> None:
        self._woken_s = self._clock()
