"""The bounded fleet history that a viewer sees when the page opens."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from controlplane.history.annotation import Annotation, AnnotationLog
from controlplane.history.bucket import Column
from controlplane.history.cache_locality.intake import cache_locality_intake
from controlplane.history.collector import FINE_S
from controlplane.history.merge import merge
from controlplane.history.roster import NO_ENGINES, HistoryRoster
from controlplane.history.window import FleetWindow
from gateway.contracts.cache_locality_sample import PoolCacheLocality
from gateway.contracts.fleet_sample import FleetSample
from web.live.peak_strip import PeakStrip
from web.live.recent_state import RecentState, recent_state
from web.live.scope import Scope, scoped_column, scoped_markers, scoped_sample

KEY_DIGITS = 6
"""Number of hex digits that name a key in a sentence, as on the Cache locality page."""


def missing_prefix(pool: PoolCacheLocality, engine_id: str) -> str:
    """Return the start of the key of the most used prefix that most other engines hold, but this one does not."""
    others = [item for item in pool.accepting if item != engine_id]
    lacking = [
        prefix
        for prefix in pool.prefixes
        if engine_id not in prefix.holders and 2 * sum(other in prefix.holders for other in others) > len(others)
    ]
    most = max(lacking, key=lambda prefix: (prefix.requests, prefix.key), default=None)
    return most.key[:KEY_DIGITS] if most is not None else ""


COLUMN_S = 2.0
COLUMNS = 150
"""Number of columns in five minutes."""
_PARTS = round(FINE_S / COLUMN_S)


@dataclass(frozen=True, slots=True, order=True)
class RemovedEngine:
    """An engine in the picture that is missing from the newest sample."""

    pool_id: str
    name: str
    engine_id: str
    since: float
    """Unix seconds of the end of its last column."""


class FleetHistory:
    """Five minutes of two-second columns, merged into FINE_S columns, one hour of peaks, and the markers.

    Not thread-safe: its owner holds the lock. A sample older than the newest column is dropped.
    """

    def __init__(self, columns: int = COLUMNS) -> None:
        self._window = FleetWindow(columns, COLUMN_S)
        # Pictures of the past end with these; a finished one does not change, so it is merged once.
        self._fine: deque[Column] = deque(maxlen=columns // _PARTS)
        self.hour = PeakStrip()
        self.markers = AnnotationLog(span_s=columns * COLUMN_S)

    def add(self, sample: FleetSample) -> bool:
        """Add the sample to the newest column; return False if it arrived too late."""
        before = self._window.latest
        if not self._window.add(sample):
            return False
        self._merge_finished()
        self.hour.add(sample)
        self.markers.follow(before, sample)
        return True

    @property
    def latest(self) -> FleetSample | None:
        """The newest sample; None before the first."""
        return self._window.latest

    @property
    def newest(self) -> Column | None:
        """The column being filled; None before the first sample."""
        return self._window.newest

    @property
    def capacity(self) -> int:
        """Number of columns in the picture."""
        return self._window.capacity

    def columns(self) -> list[Column]:
        """Return the kept columns, oldest first, without gaps."""
        return self._window.columns()

    def fine_columns(self) -> list[Column]:
        """Return the columns of FINE_S seconds for the same minutes, oldest first, without gaps."""
        newest = self.newest
        return [] if newest is None else [*self._fine, self._merged(newest.index // _PARTS)]

    def _merge_finished(self) -> None:
        """Merge the columns of the last interval of FINE_S seconds once it has ended."""
        *_, before, newest = [None, *self._window.columns()[-2:]]
        if before is not None and before.index // _PARTS < newest.index // _PARTS:
            self._fine.append(self._merged(before.index // _PARTS))

    def _merged(self, index: int) -> Column:
        return merge(index, [item for item in self._window.columns()[-2 * _PARTS :] if item.index // _PARTS == index])

    def window(self) -> list[Column | None]:
        """Return every column of the picture, oldest first; a column without samples is None."""
        return self._window.window()

    def removed(self) -> tuple[RemovedEngine, ...]:
        """Return the engines that left during the picture, by pool; deleted pools are omitted."""
        newest, latest = self.newest, self.latest
        if newest is None or latest is None:
            return ()
        last = {id(column.roster): column for column in self._window.columns() if column.roster is not newest.roster}
        pools = {pool.pool_id for pool in latest.pools}
        left = {
            engine_id: RemovedEngine(pool_id, name, engine_id, (column.index + 1) * COLUMN_S)
            for column in last.values()
            for engine_id, name, pool_id in zip(*column.roster.rows, strict=True)
            if engine_id not in newest.roster.row_of and pool_id in pools
        }
        return tuple(sorted(left.values()))


def scoped_removed(removed: tuple[RemovedEngine, ...], scope: Scope) -> tuple[RemovedEngine, ...]:
    """Return the removed engines of the pools in scope."""
    return tuple(item for item in removed if scope is None or item.pool_id in scope)


class ScopedHistory:
    """The part of a history that one scope shows now; its owner holds the history's lock."""

    def __init__(self, history: FleetHistory, scope: Scope) -> None:
        self._history = history
        self._scope = scope
        self.latest = scoped_sample(history.latest, scope)
        self.hour = history.hour
        self.capacity = history.capacity
        self.removed = scoped_removed(history.removed(), scope)

    @property
    def roster(self) -> HistoryRoster:
        """Engines of the picture: those in the newest sample in its order, then the removed ones."""
        newest = self.newest
        if newest is None or not self.removed:
            return NO_ENGINES if newest is None else newest.roster
        gone = ([getattr(item, name) for item in self.removed] for name in ("engine_id", "name", "pool_id"))
        return HistoryRoster(*((*now, *left) for now, left in zip(newest.roster.rows, gone, strict=True)))

    @property
    def newest(self) -> Column | None:
        """The column being filled; None before the first sample."""
        newest = self._history.newest
        return None if newest is None else scoped_column(newest, self._scope)

    def window(self) -> list[Column | None]:
        """Return every column of the picture, oldest first; a column without samples is None."""
        return [None if column is None else scoped_column(column, self._scope) for column in self._history.window()]

    def recent(self) -> RecentState:
        """Return the recent state from the last columns, as input of the sentence."""
        columns = [scoped_column(column, self._scope) for column in self._history.columns()]
        state = recent_state(columns, COLUMN_S)
        if not state.nothing_s or self.latest is None:
            return state
        lacks = {}
        for engine in self.latest.engines:
            idle = engine.engine_id in state.nothing_s
            word = cache_locality_intake().of(engine.pool_id, self.latest.at) if idle else None
            lacks[engine.engine_id] = missing_prefix(word.pool, engine.engine_id) if word is not None else ""
        return replace(state, lacks=lacks)

    def markers(self, after: int = 0) -> list[Annotation]:
        """Return the kept markers with numbers above `after`, oldest first."""
        return scoped_markers(self._history.markers.recent(after), self._scope)
