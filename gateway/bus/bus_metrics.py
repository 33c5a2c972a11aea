"""Metrics of the shared bus, and of the time since jobs were last woken, because stopped jobs cannot report that."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from gateway.bus.bus import Bus
from gateway.bus.redis_bus import RedisBus

WAKE_UPS = "jobs_woken"
"""Stream topic with one empty entry per second while jobs are woken."""
WAKE_UP_AGE = "headway_jobs_wake_up_age_seconds"


class BusMetrics(Collector):
    """Reads the bus's state on each scrape."""

    def __init__(self, registry: CollectorRegistry, bus: RedisBus) -> None:
        self._bus = bus
        registry.register(self)

    @override
    def collect(self) -> Iterable[Metric]:
        """Yield whether the bus is connected, since when, and what it lost."""
        state = self._bus.state
        yield GaugeMetricFamily(
            "headway_bus_connected",
            "1 while Redis is connected; 0: serving from the last known state.",
            float(state.connected),
        )
        yield GaugeMetricFamily(
            "headway_bus_state_age_seconds",
            "Seconds since the bus connected or disconnected.",
            time.monotonic() - state.since_s,
        )
        yield CounterMetricFamily(
            "headway_bus_connections",
            "Connections made to Redis; more than 1: the connection was lost.",
            state.connections,
        )
        yield CounterMetricFamily("headway_bus_dropped", "Values and stream entries dropped at a limit.", state.dropped)
        yield CounterMetricFamily("headway_bus_unreadable", "Ignored messages without a valid seal.", state.unreadable)


class WakeUpAge(Collector):
    """Exports the age of the last wake-up on the bus. Mutable: the time of the last wake-up."""

    def __init__(self, registry: CollectorRegistry, bus: Bus, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._woken_s = clock()
        bus.subscribe(WAKE_UPS, self._receive)
        registry.register(self)

    @override
    def collect(self) -> Iterable[Metric]:
        """Yield the age of the last wake-up, or of this process before the first one."""
        text = "Seconds since a background job was woken; grows while no worker or scheduler runs."
        yield GaugeMetricFamily(WAKE_UP_AGE, text, self._clock() - self._woken_s)

    def _receive(self, _topic: str, _value: bytes) -> None:
        self._woken_s = self._clock()
