"""The input of the Fleet page's sentence besides the newest sample: means of the last seconds, and lasting states."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from controlplane.history.bucket import PEAK_FLOATS, POOL_FLOATS, Column
from gateway.contracts.fleet_sample import FleetSample, Lateness

MEAN_S = 15.0
"""Work is judged by its mean over this time, as are its rates; the browser's readout does the same."""
NOTHING_FOR_S = 20.0
"""Time without a request, while requests waited in its pool, after which an engine is mentioned."""

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
    """Seconds for which an engine has had no request although some waited in its pool; other engines are left out."""
    lateness: Lateness | None = None
    """The last episode of gateway lateness, if it goes on or ended a moment ago."""
    worst: Mapping[str, float] = field(default_factory=dict)
    """Lowest share of requests on time since then."""
    lacks: Mapping[str, str] = field(default_factory=dict)
    """Start of the key of a frequently used prefix that such an idle engine lacks."""


NO_RECENT_STATE = RecentState()


def recent_state(columns: Sequence[Column], column_s: float, lateness: Lateness | None) -> RecentState:
    """Return the state of the columns (oldest first, the newest still filling), all on the newest one's roster."""
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
    """Return how long engines have been idle, where requests waited in their pool at least half of that time."""
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
    """Remembers when the gateway was last late. Mutable: that episode, and when it was last seen.

    Where the gateway does not report it, missing samples count as lateness; a gateway that restarts begins again at
    zero.
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
        """Return the episode that goes on at unix second `at`, or ended recently enough to be remembered."""
        return self._episode if at - self._seen_at <= self._kept_s else None
