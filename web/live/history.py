"""The bounded past of the fleet that a viewer sees when the page opens."""

from __future__ import annotations

from collections import deque

from gateway.fleet_sample import EngineSample, FleetSample
from web.live.column import COLUMN_S, COLUMNS, Column, column_index, fold_engine, fold_pools
from web.live.hour_strip import HourStrip
from web.live.marker import MarkerLog

HIT_WINDOW_COLUMNS = 15
"""An engine's hit rate is taken over the last half minute; shorter windows hold too few requests to mean anything."""


class FleetHistory:
    """Five minutes of two-second columns, one hour of coarse ones, and what changed in between.

    Not thread-safe: its owner holds the lock. A sample older than the newest column is dropped.
    """

    def __init__(self, columns: int = COLUMNS) -> None:
        self._columns: deque[Column] = deque(maxlen=columns)
        self._capacity = columns
        self.hour = HourStrip()
        self.markers = MarkerLog(span_s=columns * COLUMN_S)
        self.latest: FleetSample | None = None

    def add(self, sample: FleetSample) -> bool:
        """Fold the sample into the newest column; return False when it came too late to count."""
        index = column_index(sample.at)
        newest = self.newest
        if newest is not None and index < newest.index:
            return False
        if newest is None or index > newest.index:
            newest = Column(index)
            self._columns.append(newest)
            self._forget(index)
        base = self._hit_base(index)
        for engine in sample.engines:
            fold_engine(newest, engine, _hit_share(engine, base))
        fold_pools(newest, sample)
        self.hour.add(sample)
        self.markers.follow(self.latest, sample)
        self.latest = sample
        return True

    @property
    def newest(self) -> Column | None:
        """The column that is still filling; None before the first sample."""
        return self._columns[-1] if self._columns else None

    @property
    def capacity(self) -> int:
        """How many columns the picture holds."""
        return self._capacity

    def window(self) -> list[Column | None]:
        """Return every column of the picture, oldest first; None where nothing was heard."""
        if not self._columns:
            return [None] * self._capacity
        last = self._columns[-1].index
        by_index = {column.index: column for column in self._columns}
        return [by_index.get(index) for index in range(last - self._capacity + 1, last + 1)]

    def _forget(self, newest_index: int) -> None:
        while self._columns and self._columns[0].index <= newest_index - self._capacity:
            self._columns.popleft()

    def _hit_base(self, index: int) -> Column | None:
        """Return the column at the start of the hit window that ends at `index`."""
        for column in self._columns:
            if index - HIT_WINDOW_COLUMNS <= column.index < index:
                return column
        return None


def _hit_share(engine: EngineSample, base: Column | None) -> float | None:
    """Return cached over prompt tokens since `base`; None without a request or after a counter reset."""
    cell = base.engines.get(engine.engine_id) if base is not None else None
    if cell is None:
        return None
    prompt = engine.prompt_tokens_total - cell.prompt_tokens_total
    cached = engine.cached_tokens_total - cell.cached_tokens_total
    return cached / prompt if prompt > 0 and cached >= 0 else None
