"""Metrics of the shared bus."""

from __future__ import annotations

import time
from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from gateway.bus.redis_bus import RedisBus


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
