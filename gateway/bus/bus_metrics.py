"""Metrics of the shared bus, and of what jobs do: their last wake-up, because stopped jobs cannot report that, and the
scaler's plan, because jobs have no port.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from gateway.bus.bus import Bus
from gateway.bus.redis_bus import RedisBus
from gateway.contracts.wire import MIB, UnreadableMessageError, WireForm

WAKE_UPS = "jobs_woken"
"""Stream topic with one empty entry per second while jobs are woken."""
WAKE_UP_AGE = "headway_jobs_wake_up_age_seconds"
PLANS = "scaling_plan/"
"""Prefix of the last-value topics, one per pool: `scaling_plan/<pool_id>`."""
WANTED_ENGINES = "headway_wanted_engines"
PLAN_GOOD_S = 60.0
"""A plan that is not renewed for this long is void: scaling is off, or no worker runs."""


class WantedEngines(msgspec.Struct, frozen=True, kw_only=True):
    """Number of engines that a pool should have by the scaler's latest plan."""

    pool_id: str
    at: float
    """Unix seconds of the plan."""
    engines: int


_wanted = WireForm(WantedEngines, "a scaling plan", limit=MIB)
encode_wanted = _wanted.encode


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


class ScalingPlans(Collector):
    """Exports the scaler's latest plan of each pool. Mutable: the plans by pool.

    A plan that is too old is not exported: an autoscaler without a value keeps the number of engines.
    """

    def __init__(self, registry: CollectorRegistry, bus: Bus, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._plans: dict[str, WantedEngines] = {}
        bus.subscribe(PLANS, self._receive)
        registry.register(self)

    @override
    def collect(self) -> Iterable[Metric]:
        """Yield the wanted number of engines of each pool with a recent plan."""
        text = "Engines that the scaler wants, by pool; absent while scaling is off or has no recent plan."
        family = GaugeMetricFamily(WANTED_ENGINES, text, labels=("pool",))
        now_s = self._clock()
        # A copy, because the bus's thread adds plans.
        for pool_id, plan in sorted(self._plans.copy().items()):
            if now_s - plan.at <= PLAN_GOOD_S:
                family.add_metric((pool_id,), plan.engines)
        yield family

    def _receive(self, _topic: str, value: bytes) -> None:
        try:
            plan = _wanted.decode(value)
        except UnreadableMessageError:
            return
        known = self._plans.get(plan.pool_id)
        if known is None or known.at <= plan.at:
            self._plans[plan.pool_id] = plan
