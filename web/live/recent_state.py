"""Recent means and lasting states, which the Fleet page's sentence uses besides the newest sample."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from controlplane.history.bucket import PEAK_FLOATS, POOL_FLOATS, Column
from gateway.contracts.fleet_sample import FleetSample

MEAN_S = 15.0
"""Window in seconds over which work and rates are averaged; the browser's readout uses the same one."""
NOTHING_FOR_S = 20.0
"""Seconds without a request, while requests waited in its pool, after which the sentence mentions an engine."""

_MEAN_S = len(PEAK_FLOATS)
_RUNNING, _BOUND = PEAK_FLOATS.index("running"), PEAK_FLOATS.index("bound")
_WAITING = tuple(POOL_FLOATS.index(name) for name in ("unbound", "bound"))


@dataclass(frozen=True, slots=True)
class RecentState:
    """Recent values by engine or pool id; empty if nothing is known."""

    work_s: Mapping[str, float] = field(default_factory=dict)
    """Mean in-flight seconds over MEAN_S."""
    nothing_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds for which an engine has been idle although requests waited in its pool; other engines are omitted."""
    lacks: Mapping[str, str] = field(default_factory=dict)
    """By idle engine: the start of the key of a frequently used prefix that it lacks."""


NO_RECENT_STATE = RecentState()


_RATES = ("requests_per_s", "dispatched_at_once_per_s", "dispatched_waited_per_s")
_COUNTS = ("unbound", "bound", "late", "failed", "rejected")


def drawn_sample(sample: FleetSample, newest: Column) -> FleetSample:
    """Return the sample with its pools' figures as tiles and lines draw them: merged within the newest column."""
    pools = []
    for pool in sample.pools:
        values = newest.pools.get(pool.pool_id, [math.nan] * len(POOL_FLOATS))
        known = {name: value for name, value in zip(POOL_FLOATS, values, strict=True) if not math.isnan(value)}
        drawn: dict[str, Any] = {name: known[name] for name in _RATES if name in known}
        drawn |= {name: int(known[name]) for name in _COUNTS if name in known}
        if pool.rejections_per_s is not None:
            drawn["rejections_per_s"] = newest.rejections.get(pool.pool_id, {})
        pools.append(msgspec.structs.replace(pool, on_time_share=known.get("on_time"), **drawn))
    return msgspec.structs.replace(sample, pools=tuple(pools))


def recent_state(columns: Sequence[Column], column_s: float) -> RecentState:
    """Return the state of the columns (oldest first, the newest incomplete), all on the newest column's roster."""
    if not columns:
        return NO_RECENT_STATE
    newest = columns[-1]
    recent = [item for item in columns if item.index > newest.index - math.ceil(MEAN_S / column_s)]
    return RecentState(_means(recent), _starved(columns, column_s))


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
