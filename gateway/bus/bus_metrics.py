"""How the shared bus is doing, as series beside a gateway's own."""

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
        """Yield whether it is connected, since when, and what it lost."""
        state = self._bus.state
        yield GaugeMetricFamily(
            "switchyard_bus_connected", "1 while Redis is reached; 0: serving on what is known.", float(state.connected)
        )
        yield GaugeMetricFamily(
            "switchyard_bus_state_age_seconds",
            "Seconds since the bus was found or lost.",
            time.monotonic() - state.since_s,
        )
        yield CounterMetricFamily(
            "switchyard_bus_connections", "Times Redis was reached; more than 1: it was lost.", state.connections
        )
        yield CounterMetricFamily(
            "switchyard_bus_dropped", "Values and stream entries that found no place.", state.dropped
        )
        yield CounterMetricFamily(
            "switchyard_bus_unreadable", "Messages that no bus of this program published.", state.unreadable
        )
