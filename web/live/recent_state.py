"""Recent means and lasting states, which the Fleet page's sentence uses besides the newest sample."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from controlplane.history.bucket import PEAK_FLOATS, POOL_FLOATS, Column
from gateway.contracts.fleet_sample import FleetSample, Lateness

MEAN_S = 15.0
"""Window in seconds over which work and rates are averaged; the browser's readout uses the same one."""
NOTHING_FOR_S = 20.0
"""Seconds without a request, while requests waited in its pool, after which the sentence mentions an engine."""

_MEAN_S = len(PEAK_FLOATS)
_RUNNING, _BOUND = PEAK_FLOATS.index("running"), PEAK_FLOATS.index("bound")
_ON_TIME = POOL_FLOATS.index("on_time")
_WAITING = tuple(POOL_FLOATS.index(name) for name in ("unbound", "bound"))


@dataclass(frozen=True, slots=True)
class RecentState:
    """Recent values by engine or pool id; empty if nothing is known."""

    work_s: Mapping[str, float] = field(default_factory=dict)
    """Mean in-flight seconds over MEAN_S."""
    nothing_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds for which an engine has been idle although requests waited in its pool; other engines are omitted."""
    lateness: Lateness | None = None
    """The last episode of gateway lateness, if it is ongoing or has just ended."""
    worst: Mapping[str, float] = field(default_factory=dict)
    """Lowest on-time share by pool since that episode began."""
    lacks: Mapping[str, str] = field(default_factory=dict)
    """By idle engine: the start of the key of a frequently used prefix that it lacks."""


NO_RECENT_STATE = RecentState()


def recent_state(columns: Sequence[Column], column_s: float, lateness: Lateness | None) -> RecentState:
    """Return the state of the columns (oldest first, the newest incomplete), all on the newest column's roster."""
    if not columns:
        return RecentState(lateness=lateness)
    newest = columns[-1]
    recent = [item for item in columns if item.index > newest.index - math.ceil(MEAN_S / column_s)]
    since = lateness.since if lateness is not None else math.inf
    worst: dict[str, float] = {}
    for column in columns:
        for pool_id, values in column.pools.items():
            if (column.index + 1) * column_s >= since and not math.isnan(values[_ON_TIME]):
                worst[pool_id] = min(values[_ON_TIME], worst.get(pool_id, 1.0))
    return RecentState(_means(recent), _starved(columns, column_s), lateness, worst)


def _means(columns: Sequence[Column]) -> dict[str, float]:
    roster = columns[-1].roster
    series = [column.floats_for(roster, _MEAN_S) for column in columns]
    means = {}
    for row, engine_id in enumerate(roster.engine_ids):
        known = [values[row] for values in series if not math.isnan(values[row])]
        if known:
            means[engine_id] = sum(known) / len(known)
    return means


def _starved(columns: Sequence[Column], column_s: float) -> dict[str, float]:
    """Return the idle seconds of engines in whose pool requests waited for at least half of that time."""
    roster, starved_s = columns[-1].roster, {}
    lately = columns[-math.ceil(NOTHING_FOR_S / column_s) :]
    queued = {pool_id for column in lately for pool_id, values in column.pools.items() if _waits(values)}
    for row, engine_id in enumerate(roster.engine_ids):
        pool_id, spans, waited = roster.pool_ids[row], 0, 0
        # Most engines need no scan: their pool has no queue, or they had work a moment ago.
        for column in reversed(columns) if pool_id in queued else ():
            at = column.roster.row_of.get(engine_id)
            if at is None or column.floats[_RUNNING][at] or column.floats[_BOUND][at]:
                break
            values = column.pools.get(pool_id)
            spans += 1
            waited += values is not None and _waits(values)
        if spans * column_s >= NOTHING_FOR_S and 2 * waited >= spans:
            starved_s[engine_id] = spans * column_s
    return starved_s


def _waits(values: Sequence[float]) -> bool:
    return any(values[index] > 0 for index in _WAITING)


class LatenessWatch:
    """Remembers when the gateway was last late. Mutable state: that episode, and when it was last observed.

    Missing samples count as lateness if the gateway does not report it. A gateway that restarts begins again at zero.
    """

    def __init__(self, gap_s: float = 2.0, kept_s: float = 60.0) -> None:
        self._gap_s = gap_s
        self._kept_s = kept_s
        self._episode: Lateness | None = None
        self._seen_at = -math.inf

    def follow(self, before: FleetSample | None, sample: FleetSample) -> None:
        """Add the sample that follows `before`."""
        if sample.lateness is not None:
            self._episode, self._seen_at = sample.lateness, sample.at
        elif before is not None and sample.seq > before.seq and sample.at - before.at > self._gap_s:
            last = self.recent(sample.at)
            away_s = sample.at - before.at
            self._episode = Lateness(
                since=last.since if last else before.at,
                lapses=(last.lapses if last else 0) + 1,
                away_s=(last.away_s if last else 0.0) + away_s,
                rejects=False,
            )
            self._seen_at = sample.at

    def recent(self, at: float) -> Lateness | None:
        """Return the episode of lateness that is ongoing at Unix second `at` or ended shortly before it."""
        return self._episode if at - self._seen_at <= self._kept_s else None
