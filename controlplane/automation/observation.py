"""Fleet state that this process receives on the bus, kept for the automations."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache

import msgspec

from controlplane.automation.pool_windows import PoolWindows
from controlplane.platform.bus import get_bus
from controlplane.platform.live_fleet.engines_together import counts_together
from controlplane.platform.live_fleet.pools_together import prefixes_together
from controlplane.platform.live_fleet.samples import MAX_AGE_S, FleetSamples, fleet_samples
from gateway.bus.bus import Bus
from gateway.contracts.engine_report import TOPIC_PREFIX as LOADS
from gateway.contracts.engine_report import EngineReport, decode_report
from gateway.contracts.fleet_sample import TAKING_WORK, EngineCounts, EngineSample, FleetSample
from gateway.contracts.unserved_requests import GOOD_S, UnservedRequests, decode_unserved
from gateway.contracts.unserved_requests import TOPIC as UNSERVED
from gateway.contracts.wire import UnreadableMessageError
from gateway.pools.engines.report_fence import ReportFence
from planning.facts.fleet_facts import PoolWindow, PrefixFacts


class Sighting(msgspec.Struct, frozen=True, kw_only=True):
    """Observed figures of one engine. A figure that no gateway reports is zero."""

    incarnation: int = 1
    counts: EngineCounts | None = None
    in_flight_s: float = 0.0
    bound: int = 0
    running: int = 0
    """Requests that the gateways dispatched and that are not complete."""
    lost: bool = False
    """Whether all gateways that know the engine have lost it."""
    known: bool = False
    """Whether any gateway knows the engine."""

    @property
    def in_flight(self) -> int | None:
        """Return the requests that run on the engine or wait for it; None: unknown."""
        return self.running + self.bound if self.known else None


def together(samples: Sequence[EngineSample], report: EngineReport | None) -> Sighting:
    """Merge several gateways' samples of one engine. `report` distinguishes the engine's processes."""
    if not samples:
        return Sighting()
    process_start = report.process_start if report is not None else None
    return Sighting(
        # Each gateway counts restarts by itself, so that the sum changes with any of them.
        incarnation=int(process_start) if process_start else sum(sample.incarnation for sample in samples),
        counts=counts_together([sample.counts for sample in samples if sample.counts is not None]),
        in_flight_s=sum(sample.in_flight_s for sample in samples),
        bound=sum(sample.bound for sample in samples),
        running=sum(sample.running for sample in samples),
        lost=all(sample.state == "lost" for sample in samples),
        known=True,
    )


LOADS_EVERY_S = 1.0
LOADS_KEPT_S = 900.0
MAX_ENGINES = 100_000

logger = logging.getLogger(__name__)


class EngineLoadPoint(msgspec.Struct, frozen=True, gc=False):
    """One engine's load at one moment, used by the prefill/decode automation."""

    at_s: float
    engine_id: str
    in_flight_s: float
    tpot_s: float | None
    kv_usage: float | None


class FleetObservation:
    """The latest reports of the prober, the latest samples of the gateways, and a short history of both.

    Thread-safe. Times are unix seconds.
    """

    def __init__(self, bus: Bus, samples: FleetSamples, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._samples = samples
        self._reports: dict[str, EngineReport] = {}
        self._unreachable: dict[str, float] = {}
        self._fence = ReportFence()
        self._windows: dict[str, PoolWindows] = {}
        self._unserved: dict[str, UnservedRequests] = {}
        self._loads: deque[EngineLoadPoint] = deque(maxlen=MAX_ENGINES)
        self._loads_at = 0.0
        self._checked_at = 0.0
        self._unsubscribe = [
            samples.subscribe_gateways(self._take_sample),
            bus.subscribe(LOADS, lambda _topic, value: self._take_report(value)),
            bus.subscribe(UNSERVED, lambda _topic, value: self._take_unserved(value)),
        ]

    def stop(self) -> None:
        """Unsubscribe."""
        for unsubscribe in self._unsubscribe:
            unsubscribe()

    def engines(self, pool_id: str, now_s: float) -> dict[str, tuple[Sighting, EngineReport | None, float | None]]:
        """Return the known facts of the pool's engines by id: sighting, last report, and start of an outage."""
        with self._lock:
            by_engine: dict[str, list[EngineSample]] = {}
            for sample in self._fresh(now_s):
                for engine in sample.engines:
                    if engine.pool_id == pool_id:
                        by_engine.setdefault(engine.engine_id, []).append(_as_evidence(engine, sample))
            return {
                engine_id: (
                    together(samples, self._reports.get(engine_id)),
                    self._reports.get(engine_id),
                    self._unreachable.get(engine_id),
                )
                for engine_id, samples in by_engine.items()
            }

    def report(self, engine_id: str) -> EngineReport | None:
        """Return the prober's last report of an engine."""
        with self._lock:
            return self._reports.get(engine_id)

    def unserved(self, now_s: float) -> dict[str, int]:
        """Return the number of requests that wait for a first engine, by pool, where there are any."""
        with self._lock:
            return {name: item.requests for name, item in self._unserved.items() if abs(now_s - item.at) <= GOOD_S}

    def windows(self, pool_id: str, now_s: float) -> tuple[PoolWindow, ...]:
        """Return the pool's completed windows, oldest first."""
        with self._lock:
            windows = self._windows.get(pool_id)
            return windows.windows(now_s) if windows is not None else ()

    def prefixes(self, pool_id: str, now_s: float) -> tuple[int, list[PrefixFacts]]:
        """Return how many engines the pool's placement keeps a prefix on (0: any number), and its busiest prefixes."""
        with self._lock:
            pools = [item for sample in self._fresh(now_s) for item in sample.pools if item.pool_id == pool_id]
        prefixes = [
            PrefixFacts(
                key=prefix.key,
                work_s_by_engine=prefix.work_s_by_engine,
                candidates=prefix.candidates,
                recomputed_tokens=prefix.recomputed_tokens,
            )
            for prefix in prefixes_together(pools)
        ]
        return max((pool.usual_d for pool in pools), default=0), prefixes

    def loads(self, since_s: float) -> list[EngineLoadPoint]:
        """Return the load of every engine once a second since `since_s`."""
        with self._lock:
            return [point for point in self._loads if point.at_s >= since_s]

    def gateways(self, now_s: float) -> int:
        """Return how many gateways reported recently."""
        with self._lock:
            return len(self._fresh(now_s))

    # -- in the publisher's thread

    def _take_sample(self, gateway: str, sample: FleetSample) -> None:
        with self._lock:
            self._forget_the_future()
            serving: dict[str, int] = {}
            for engine in sample.engines:
                serving[engine.pool_id] = serving.get(engine.pool_id, 0) + (engine.state in TAKING_WORK)
            for pool in sample.pools:
                windows = self._windows.setdefault(pool.pool_id, PoolWindows())
                windows.add(gateway, pool, sample.at, serving.get(pool.pool_id, 0))
            self._keep_loads(sample.at)

    def _take_report(self, value: bytes) -> None:
        try:
            report = decode_report(value)
        except UnreadableMessageError:
            return
        with self._lock:
            self._forget_the_future()
            if not self._fence.admits(report) or (
                report.engine_id not in self._reports and len(self._reports) >= MAX_ENGINES
            ):
                return
            self._reports[report.engine_id] = report
            if report.reachable:
                self._unreachable.pop(report.engine_id, None)
            else:
                # The first failure counts: later ones do not shorten the outage.
                self._unreachable.setdefault(report.engine_id, report.at)

    def _take_unserved(self, value: bytes) -> None:
        try:
            report = decode_unserved(value)
        except UnreadableMessageError:
            return
        with self._lock:
            self._unserved[report.pool_id] = report

    def _forget_the_future(self) -> None:
        """Drop the history if the clock was set back. Otherwise future samples would count as the newest."""
        now_s = self._clock()
        if now_s < self._checked_at - MAX_AGE_S:
            for history in (self._unreachable, self._windows, self._loads):
                history.clear()
            self._loads_at = 0.0
        self._checked_at = now_s

    def _keep_loads(self, at: float) -> None:
        if at - self._loads_at < LOADS_EVERY_S:
            return
        self._loads_at = at
        while self._loads and self._loads[0].at_s < at - LOADS_KEPT_S:
            self._loads.popleft()
        by_engine: dict[str, list[EngineSample]] = {}
        for sample in self._fresh(at):
            for engine in sample.engines:
                by_engine.setdefault(engine.engine_id, []).append(engine)
        for engine_id, samples in by_engine.items():
            seen = together(samples, None)
            report = self._reports.get(engine_id)
            tpot_s = seen.counts.tpot_s if seen.counts is not None else None
            kv_usage = report.kv_usage if report is not None else None
            self._loads.append(EngineLoadPoint(at, engine_id, seen.in_flight_s, tpot_s, kv_usage))

    def _fresh(self, now_s: float) -> list[FleetSample]:
        """Return the gateways' current samples, without future samples from before the clock was set back."""
        return [sample for sample in self._samples.newest() if abs(now_s - sample.at) <= MAX_AGE_S]


def _as_evidence(engine: EngineSample, sample: FleetSample) -> EngineSample:
    """Return the sample without counts if its gateway is late, because it lacks its engines' reports."""
    return engine if sample.lateness is None else msgspec.structs.replace(engine, counts=None)


@cache
def fleet_observation() -> FleetObservation:
    """Return this process's FleetObservation, which follows the control plane's bus."""
    return FleetObservation(get_bus(), fleet_samples())
