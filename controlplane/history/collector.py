"""Folds the live samples of this process into ten-second columns until the roll-up job has stored them."""

from __future__ import annotations

import threading
from functools import cache

from controlplane.history.annotation import Annotation, AnnotationLog, without_replaced
from controlplane.history.bucket import Column
from controlplane.history.window import FleetWindow
from controlplane.platform.live_fleet.samples import fleet_samples
from gateway.contracts.fleet_sample import FleetSample, PoolSample

FINE_S = 10
"""Length of the shortest stored interval, in seconds."""
WAITING_COLUMNS = 60
"""Maximum number of unstored columns, ten minutes. If the database stays unavailable, older columns are lost."""
SETTLE_S = 1.0
"""Delay between a column's end and its completion, because samples of two threads may arrive out of order."""


class FleetCollector:
    """Collects columns. Thread-safe: samples arrive in the publisher's thread, the job reads columns in another."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._window = FleetWindow(WAITING_COLUMNS, FINE_S)
        self._markers = AnnotationLog(span_s=WAITING_COLUMNS * FINE_S)
        self._stored = -1
        self._stored_marker = 0

    def take(self, sample: FleetSample) -> None:
        """Add one sample."""
        with self._lock:
            before = self._window.latest
            if self._window.add(sample):
                self._markers.follow(before, sample)

    def finished(self, at: float) -> list[Column]:
        """Return the columns that ended before `at` (unix seconds) and are not stored yet, oldest first."""
        with self._lock:
            last = self._window.index_of(at - SETTLE_S) - 1
            return [column for column in self._window.columns() if self._stored < column.index <= last]

    def markers(self, until: int) -> list[Annotation]:
        """Return the markers up to the end of column `until` that are not stored yet, oldest first."""
        with self._lock:
            markers = self._markers.recent(self._stored_marker)
        return [marker for marker in without_replaced(markers) if marker.at < (until + 1) * FINE_S]

    def pools(self) -> tuple[PoolSample, ...]:
        """Return the pools of the newest sample."""
        with self._lock:
            return self._window.latest.pools if self._window.latest else ()

    def confirm(self, index: int, marker: int) -> None:
        """Record that columns up to `index` and markers up to number `marker` are stored."""
        with self._lock:
            self._stored = max(self._stored, index)
            self._stored_marker = max(self._stored_marker, marker)


@cache
def fleet_collector() -> FleetCollector:
    """Return this process's FleetCollector, which follows all gateways."""
    collector = FleetCollector()
    fleet_samples().subscribe(collector.take)
    return collector
