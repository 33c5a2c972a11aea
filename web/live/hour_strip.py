"""One hour of the fleet in coarse columns: the longest queue of each pool per ten seconds."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping

from gateway.contracts.fleet_sample import FleetSample

STRIP_COLUMN_S = 10.0
STRIP_COLUMNS = 360


class HourStrip:
    """Per pool and column of STRIP_COLUMN_S seconds: the largest in-flight work, in seconds, of any of its engines.

    Peaks that this process received take precedence; stored peaks fill gaps, such as the time before it started.
    """

    def __init__(self) -> None:
        self._columns: deque[tuple[int, dict[str, float]]] = deque(maxlen=STRIP_COLUMNS)
        self._stored: Mapping[str, Mapping[int, float]] = {}

    def add(self, sample: FleetSample) -> None:
        """Update the newest column's peaks."""
        index = int(sample.at // STRIP_COLUMN_S)
        if not self._columns or index > self._columns[-1][0]:
            self._columns.append((index, {}))
        peaks = self._columns[-1][1]
        for engine in sample.engines:
            peaks[engine.pool_id] = max(peaks.get(engine.pool_id, 0.0), engine.in_flight_s)

    def restore(self, stored: Mapping[str, Mapping[int, float]]) -> bool:
        """Add stored peaks (pool → column → seconds); return whether they change the displayed hour."""
        known = {index for index, _ in self._columns} | {index for peaks in self._stored.values() for index in peaks}
        oldest = self.newest_index - STRIP_COLUMNS
        self._stored = stored
        return any(index > oldest and index not in known for peaks in stored.values() for index in peaks)

    @property
    def newest_index(self) -> int:
        """Absolute number of the newest column (Unix seconds / STRIP_COLUMN_S); 0 if empty."""
        return self._columns[-1][0] if self._columns else 0

    def series(self, pool_id: str, columns: int = STRIP_COLUMNS) -> list[float]:
        """Return the pool's last `columns` peaks in seconds, oldest first; NaN for columns without samples."""
        first = self.newest_index - columns + 1
        stored = self._stored.get(pool_id, {})
        values = [stored.get(index, math.nan) for index in range(first, first + columns)]
        for index, peaks in self._columns:
            if index >= first and pool_id in peaks:
                known = values[index - first]
                # Of the column in which this process started it received only a part.
                values[index - first] = peaks[pool_id] if math.isnan(known) else max(known, peaks[pool_id])
        return values
