"""Tracks draining engines, so that a countdown has a history to estimate from."""

from __future__ import annotations

import threading
from functools import cache

from controlplane.fleet.drain_progress import DRAINING, DrainMeter, DrainProgress, EngineLeft
from controlplane.platform.live_fleet.samples import fleet_samples
from gateway.contracts.fleet_sample import FleetSample


class DrainWatch:
    """One drain meter, fed with the fleet's samples. Thread-safe: samples arrive in the publisher's thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._meter = DrainMeter()

    def take(self, sample: FleetSample) -> None:
        """Process one sample."""
        left = [
            EngineLeft(engine.engine_id, engine.state, engine.since, engine.running + engine.bound)
            for engine in sample.engines
            if engine.state in DRAINING
        ]
        with self._lock:
            self._meter.take(sample.at, left)

    def progress(self, engine_id: str) -> DrainProgress | None:
        """Return the engine's drain progress; None if it is not draining."""
        with self._lock:
            return self._meter.progress(engine_id)


@cache
def drain_watch() -> DrainWatch:
    """Return this process's watch, which follows all gateways."""
    watch = DrainWatch()
    fleet_samples().subscribe(watch.take)
    return watch
