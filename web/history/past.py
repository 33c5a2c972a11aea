"""The stored history as a picture: the columns of a period, merged from roll-ups and this process's live columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from controlplane.history.annotation import Annotation
from controlplane.history.bucket import ENGINE_FLOATS, Column
from controlplane.history.collector import FINE_S
from controlplane.history.merge import merged_by
from controlplane.history.rollups import COARSE_S, FACTOR
from controlplane.history.roster import NO_ENGINES, HistoryRoster, roster_of, union
from controlplane.history.store import Past, PoolHistoryFacts, read_past, read_peaks
from gateway.contracts.fleet_sample import FleetSample
from web.history.past_range import Stretch
from web.live.feed import FleetFeed, Recent
from web.live.peak_strip import PeakStrip
from web.live.scope import Scope
from web.live.verdict import FleetVerdict

MAX_MARKERS = 240
TAIL_COLUMNS = 30
"""Maximum number of long columns at the end that are merged from short ones; the job stores the others soon."""
_SECONDS = ENGINE_FLOATS.index("seconds")


@dataclass(frozen=True, slots=True)
class PastPicture:
    """The content of a period; columns are oldest first, None if nothing was recorded."""

    stretch: Stretch
    columns: list[Column | None]
    roster: HistoryRoster
    pools: dict[str, PoolHistoryFacts]
    markers: list[Annotation]
    strip: PeakStrip
    sample: FleetSample | None
    """The newest live sample, if the period reaches the present."""
    verdict: FleetVerdict | None
    """The sentence about the period."""
    removed: frozenset[str]
    """Ids of the engines that have left the fleet."""
    targets: Mapping[str, float]
    """Target share on time by pool, as of FleetFeed."""


def read_picture(stretch: Stretch, feed: FleetFeed, scope: Scope = None) -> PastPicture:
    """Read the period for the pools in scope: stored columns, then newer ones that only this process has received."""
    recent, newest = feed.recent(scope), feed.seen(scope)
    sample = newest if stretch.live else None
    past = past_columns(stretch, recent.columns, scope)
    if sample is not None:
        past.pools |= {pool.pool_id: _facts_of(pool) for pool in sample.pools}
    pools = _ordered_pools(past.pools, newest)
    roster = _roster(past.columns, sample, list(pools))
    by_index = {column.index: column for column in _on(past.columns, roster)}
    return PastPicture(
        stretch,
        [by_index.get(index) for index in range(stretch.first, stretch.last + 1)],
        roster,
        pools,
        _markers(past.markers, recent, stretch),
        _strip(stretch, recent.columns, scope),
        sample,
        feed.verdict(scope) if sample is not None else None,
        _removed(roster, newest),
        feed.targets,
    )


def past_columns(stretch: Stretch, live: Sequence[Column], scope: Scope) -> Past:
    """Return the stored columns of the period, followed by newer ones, made of those that only this process has."""
    if stretch.range.column_s == FINE_S:
        return _fine(stretch.first, stretch.last, live, scope)
    past = read_past(COARSE_S, stretch.first, stretch.last, scope)
    _add_tail(past, stretch, live, scope)
    return past


def _fine(first: int, last: int, live: Sequence[Column], scope: Scope) -> Past:
    """Return the columns of FINE_S seconds; this process adds columns that are not stored yet."""
    past = read_past(FINE_S, first, last, scope)
    stored = {column.index for column in past.columns}
    past.columns += [column for column in live if first <= column.index <= last and column.index not in stored]
    past.columns.sort(key=lambda column: column.index)
    if past.columns:
        past.columns = _on(past.columns, past.columns[-1].roster)
    return past


def _add_tail(past: Past, stretch: Stretch, live: Sequence[Column], scope: Scope) -> None:
    """Add the long columns at the end that the job has not stored yet."""
    newest = past.columns[-1].index if past.columns else stretch.first - 1
    first = max(newest + 1, stretch.last - TAIL_COLUMNS)
    if first > stretch.last:
        return
    tail = _fine(first * FACTOR, (stretch.last + 1) * FACTOR - 1, live, scope)
    past.columns += [column for _, column in sorted(merged_by(tail.columns, FACTOR).items())]
    past.markers += tail.markers
    past.pools |= tail.pools


def _roster(columns: Sequence[Column], sample: FleetSample | None, pools: Sequence[str]) -> HistoryRoster:
    """Return the engines of the picture: current ones in order, then removed ones, pool by pool."""
    rosters = {id(column.roster): column.roster for column in columns}
    newest = columns[-1].roster if columns else NO_ENGINES
    last = roster_of(sample.engines) if sample is not None else newest
    ordered = list(dict.fromkeys(last.pool_ids)) == [pool for pool in pools if pool in last.pool_ids]
    if ordered and all(roster == last for roster in rosters.values()):
        return last
    return union(rosters.values(), last=last, pools=pools)


def _removed(roster: HistoryRoster, newest: FleetSample | None) -> frozenset[str]:
    """Return the removed engines of the roster; empty before the first sample, because nothing is known then."""
    if newest is None:
        return frozenset()
    return frozenset(roster.engine_ids) - {engine.engine_id for engine in newest.engines}


def _on(columns: Sequence[Column], roster: HistoryRoster) -> list[Column]:
    """Return the columns; those with an equal roster get this roster object, so that no row moves."""
    rosters = {id(column.roster): column.roster for column in columns if column.roster is not roster}
    same = {key for key, other in rosters.items() if other == roster}
    return [replace(column, roster=roster) if id(column.roster) in same else column for column in columns]


def _ordered_pools(facts: dict[str, PoolHistoryFacts], sample: FleetSample | None) -> dict[str, PoolHistoryFacts]:
    """Return the pools in their current order, then the removed pools."""
    now = [pool.pool_id for pool in sample.pools] if sample else []
    order = [pool_id for pool_id in now if pool_id in facts]
    order += sorted((fact for fact in facts if fact not in now), key=lambda key: facts[key].name)
    return {pool_id: facts[pool_id] for pool_id in order}


def _facts_of(pool: object) -> PoolHistoryFacts:
    return PoolHistoryFacts(**{name: getattr(pool, name) for name in PoolHistoryFacts.__struct_fields__})


def _markers(stored: list[Annotation], recent: Recent, stretch: Stretch) -> list[Annotation]:
    """Return the period's markers, renumbered. This process's markers replace stored ones from its first sample on."""
    all_of = [marker for marker in stored if marker.at < recent.since]
    all_of += [marker for marker in recent.markers if marker.at >= recent.since]
    start = stretch.first * stretch.range.column_s
    shown = [marker for marker in all_of if start <= marker.at < stretch.end][-MAX_MARKERS:]
    return [
        Annotation(number, item_.at, item_.kind, item_.label, item_.text, item_.pool_id, item_.engine_id)
        for number, item_ in enumerate(sorted(shown, key=lambda item: item.at), start=1)
    ]


def _strip(stretch: Stretch, live: Sequence[Column], scope: Scope) -> PeakStrip:
    """Return the peaks of the strip."""
    chosen, strip = stretch.range, PeakStrip()
    first = stretch.strip_last - chosen.strip_columns + 1
    stored_s = FINE_S if chosen.strip_column_s == FINE_S else COARSE_S
    factor = chosen.strip_column_s // stored_s
    for pool_id, values in read_peaks(stored_s, first * factor, (stretch.strip_last + 1) * factor - 1, scope).items():
        for index, value in values.items():
            strip.raise_to(index // factor, [(pool_id, value)])
    for column in live:
        seconds = column.floats[_SECONDS]
        strip.raise_to(
            column.index * FINE_S // chosen.strip_column_s, zip(column.roster.pool_ids, seconds, strict=True)
        )
    return strip
