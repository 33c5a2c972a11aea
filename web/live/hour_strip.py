"""One hour of the fleet in coarse columns: the tallest queue of each pool, quarter minute by quarter minute."""

from __future__ import annotations

import math
from collections import deque

from gateway.fleet_sample import FleetSample

STRIP_COLUMN_S = 15.0
STRIP_COLUMNS = 240


class HourStrip:
    """Per pool, the peak outstanding seconds of any of its engines, per column of STRIP_COLUMN_S seconds."""

    def __init__(self) -> None:
        self._columns: deque[tuple[int, dict[str, float]]] = deque(maxlen=STRIP_COLUMNS)

    def add(self, sample: FleetSample) -> None:
        """Raise the newest column's peaks."""
        index = int(sample.at // STRIP_COLUMN_S)
        if not self._columns or index > self._columns[-1][0]:
            self._columns.append((index, {}))
        peaks = self._columns[-1][1]
        for engine in sample.engines:
            peaks[engine.pool_id] = max(peaks.get(engine.pool_id, 0.0), engine.outstanding_s)

    @property
    def newest_index(self) -> int:
        """Absolute number of the newest column (unix seconds / STRIP_COLUMN_S); 0 when empty."""
        return self._columns[-1][0] if self._columns else 0

    def series(self, pool_id: str, columns: int = STRIP_COLUMNS) -> list[float]:
        """Return the pool's last `columns` peaks in seconds, oldest first; NaN where nothing was heard."""
        values = [math.nan] * columns
        first = self.newest_index - columns + 1
        for index, peaks in self._columns:
            if index >= first and pool_id in peaks:
                values[index - first] = peaks[pool_id]
        return values
