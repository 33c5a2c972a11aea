"""Follows the fleet for engines that drain, so that a countdown has a past to estimate from."""

from __future__ import annotations

import threading
from functools import cache

from controlplane.fleet.drain_progress import DRAINING, DrainMeter, DrainProgress, EngineLeft
from controlplane.platform.bus import get_bus
from gateway.contracts.fleet_sample import TOPIC, decode_sample
from gateway.contracts.wire import UnreadableMessageError


class DrainWatch:
    """One meter fed by the bus. Thread-safe: samples come in the publisher's thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._meter = DrainMeter()

    def take(self, value: bytes) -> None:
        """Take in one encoded FleetSample; what cannot be read is the feed's to complain about."""
        try:
            sample = decode_sample(value)
        except UnreadableMessageError:
            return
        left = [
            EngineLeft(engine.engine_id, engine.state, engine.since, engine.running + engine.bound)
            for engine in sample.engines
            if engine.state in DRAINING
        ]
        with self._lock:
            self._meter.take(sample.at, left)

    def progress(self, engine_id: str) -> DrainProgress | None:
        """Return how far the engine is; None when it does not drain."""
        with self._lock:
            return self._meter.progress(engine_id)


@cache
def drain_watch() -> DrainWatch:
    """Return this process's watch, following the control plane's bus."""
    watch = DrainWatch()
    get_bus().subscribe(TOPIC, lambda _topic, value: watch.take(value))
    return watch
