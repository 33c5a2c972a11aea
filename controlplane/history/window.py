"""The last columns of the fleet, updated with each sample."""

from __future__ import annotations

from array import array
from collections import deque
from dataclasses import dataclass

from controlplane.history.bucket import UNKNOWN_BYTE, Column, column_of
from controlplane.history.merge import merge
from controlplane.history.roster import NO_ENGINES, HistoryRoster, roster_of
from gateway.contracts.fleet_sample import FleetSample
from gateway.contracts.outcomes import OutcomeCounts

HIT_WINDOW_S = 30.0
"""Length of the window for an engine's hit rates. Shorter windows have too few requests."""


@dataclass(frozen=True, slots=True)
class _Totals:
    """Counters of every engine at the end of a column, in the order of its roster."""

    index: int
    roster: HistoryRoster
    prompt: array[int]
    cached: array[int]
    predicted: array[int]


class FleetWindow:
    """A window of `columns` columns of `column_s` seconds. A sample older than the newest column is dropped.

    Not thread-safe: the owner holds a lock.
    """

    def __init__(self, columns: int, column_s: float) -> None:
        self.capacity = columns
        self.column_s = column_s
        self.latest: FleetSample | None = None
        self._columns: deque[Column] = deque(maxlen=columns)
        self._hit_columns = max(1, round(HIT_WINDOW_S / column_s))
        self._totals: deque[_Totals] = deque(maxlen=self._hit_columns + 1)
        self._roster = NO_ENGINES
        self._outcomes: dict[str, OutcomeCounts] = {}

    def index_of(self, at: float) -> int:
        """Return the absolute index of the column that contains the time `at` (unix seconds)."""
        return int(at // self.column_s)

    @property
    def newest(self) -> Column | None:
        """The column of the newest sample; None before the first sample."""
        return self._columns[-1] if self._columns else None

    def columns(self) -> list[Column]:
        """Return the stored columns, oldest first, without the gaps between them."""
        return list(self._columns)

    def window(self) -> list[Column | None]:
        """Return every column of the window, oldest first; None for columns without samples."""
        if not self._columns:
            return [None] * self.capacity
        last = self._columns[-1].index
        by_index = {column.index: column for column in self._columns}
        return [by_index.get(index) for index in range(last - self.capacity + 1, last + 1)]

    def add(self, sample: FleetSample) -> bool:
        """Add the sample to the newest column. Return False if it is too late to count."""
        index = self.index_of(sample.at)
        newest = self.newest
        if newest is not None and index < newest.index:
            return False
        roster = self._roster_of(sample)
        column = column_of(index, roster, sample, self._shares(sample, index), self._outcomes)
        if newest is not None and index == newest.index:
            column = merge(index, [self._columns.pop(), column], roster)
        self._columns.append(column)
        while self._columns[0].index <= index - self.capacity:
            self._columns.popleft()
        self._count(sample, index)
        self._outcomes |= {pool.pool_id: pool.outcomes.total for pool in sample.pools if pool.outcomes is not None}
        self.latest = sample
        return True

    def _roster_of(self, sample: FleetSample) -> HistoryRoster:
        roster = roster_of(sample.engines)
        # The same object while the topology stays: columns compare rosters by identity.
        if roster != self._roster:
            self._roster = roster
        return self._roster

    def _count(self, sample: FleetSample, index: int) -> None:
        if self._totals and self._totals[-1].index == index:
            self._totals.pop()
        engines = sample.engines
        self._totals.append(
            _Totals(
                index,
                self._roster,
                array("q", [engine.prompt_tokens_total for engine in engines]),
                array("q", [engine.cached_tokens_total for engine in engines]),
                array("q", [engine.predicted_tokens_total for engine in engines]),
            )
        )

    def _shares(self, sample: FleetSample, index: int) -> tuple[bytes, bytes]:
        """Return the shares of reported and of predicted hits since the start of the hit window, as share bytes."""
        base = next((total for total in self._totals if index - self._hit_columns <= total.index < index), None)
        if base is None:
            unknown = bytes([UNKNOWN_BYTE]) * len(sample.engines)
            return unknown, unknown
        hit, predicted = bytearray(), bytearray()
        for engine in sample.engines:
            row = base.roster.row_of.get(engine.engine_id)
            if row is None:
                hit.append(UNKNOWN_BYTE)
                predicted.append(UNKNOWN_BYTE)
                continue
            prompt = engine.prompt_tokens_total - base.prompt[row]
            hit.append(_share(engine.cached_tokens_total - base.cached[row], prompt))
            predicted.append(_share(engine.predicted_tokens_total - base.predicted[row], prompt))
        return bytes(hit), bytes(predicted)


def _share(part: int, whole: int) -> int:
    """Return part / whole in half percents; unknown without requests or after a counter reset."""
    return min(200, round(200 * part / whole)) if whole > 0 and part >= 0 else UNKNOWN_BYTE
