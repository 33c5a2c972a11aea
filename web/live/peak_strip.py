"""The strip below the chart: the longest queue of each pool in coarse columns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from gateway.contracts.fleet_sample import FleetSample

STRIP_COLUMN_S = 10.0
STRIP_COLUMNS = 360
"""Length of the live strip: one hour."""


class PeakStrip:
    """Per pool and column: the largest in-flight work, in seconds, of any of its engines."""

    def __init__(self) -> None:
        self._peaks: dict[int, dict[str, float]] = {}
        self.newest_index = 0
        """Absolute number of the newest live column (Unix seconds / STRIP_COLUMN_S); 0 without samples."""

    def add(self, sample: FleetSample) -> None:
        """Raise the peaks of the sample's column to those of the sample; forget columns that leave the live strip."""
        index = int(sample.at // STRIP_COLUMN_S)
        if index > self.newest_index:
            self.newest_index = index
            for old in [item for item in self._peaks if item <= index - STRIP_COLUMNS]:
                del self._peaks[old]
        self.raise_to(index, ((engine.pool_id, engine.in_flight_s) for engine in sample.engines))

    def raise_to(self, index: int, peaks: Iterable[tuple[str, float]]) -> None:
        """Raise the peaks of a column to these (pool, seconds)."""
        column = self._peaks.setdefault(index, {})
        for pool_id, seconds in peaks:
            column[pool_id] = max(column.get(pool_id, 0.0), seconds)

    def restore(self, stored: Mapping[str, Mapping[int, float]]) -> bool:
        """Add stored peaks (pool → column → seconds), such as those from before this process started.

        Return whether they fill columns of the displayed hour that were empty.
        """
        oldest, known = self.newest_index - STRIP_COLUMNS, set(self._peaks)
        for pool_id, peaks in stored.items():
            for index, seconds in peaks.items():
                if index > oldest:
                    self.raise_to(index, [(pool_id, seconds)])
        return self._peaks.keys() != known

    def series(self, pool_id: str, columns: int = STRIP_COLUMNS, last: int | None = None) -> list[float]:
        """Return the pool's peaks in `columns` columns up to `last` (default: the newest); NaN: unknown."""
        end = (self.newest_index if last is None else last) + 1
        return [self._peaks.get(index, {}).get(pool_id, math.nan) for index in range(end - columns, end)]
