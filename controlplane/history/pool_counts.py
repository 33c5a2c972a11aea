"""One pool's history as counts: its engines by state, and its share of requests on time."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass

from controlplane.history.bucket import ENGINE_BYTES, LOST, POOL_FLOATS, Column
from controlplane.history.codec import UnreadableRollupError, decode_part, rows_of
from controlplane.history.models.rollup import Rollup
from gateway.contracts.fleet_sample import STATES, TAKING_WORK

logger = logging.getLogger(__name__)

_STATE = ENGINE_BYTES.index("state")
_ON_TIME = POOL_FLOATS.index("on_time")
_WORKING = tuple(STATES.index(state) for state in sorted(TAKING_WORK))
_DRAINING = STATES.index("draining")


@dataclass(frozen=True, slots=True)
class PoolCounts:
    """One interval. Engines that are starting, unknown, quarantined, or in maintenance are not counted."""

    at_s: float
    """Unix seconds at the start of the interval."""
    running: int
    """Number of engines that are serving, hot, or degraded."""
    draining: int
    failed: int
    """Number of engines that were lost at any time in the interval."""
    on_time: float | None
    """Share of requests, 0..1; None: no requests, or unknown."""


def stored_counts(pool: str, seconds: int, first: int, last: int) -> list[PoolCounts]:
    """Return the counts of stored intervals `first`..`last` (both included) of `seconds` seconds, oldest first, in one
    query.
    """
    rows = Rollup.objects.filter(seconds=seconds, pool=pool, index__range=(first, last)).order_by("index")
    counts = []
    for index, data in rows.values_list("index", "data"):
        try:
            part = decode_part(bytes(data))
        except UnreadableRollupError as error:
            logger.warning("a roll-up is unreadable and shows as a gap: %s", error)
            continue
        counts.append(counts_of(float(index * seconds), part.codes[_STATE], part.pool[_ON_TIME]))
    return counts


def live_counts(pool: str, seconds: int, columns: Sequence[Column]) -> list[PoolCounts]:
    """Return the counts of columns of `seconds` seconds that are not stored yet."""
    counts = []
    for column in columns:
        if pool not in column.pools or not column.codes:
            continue
        codes = column.codes[_STATE]
        mine = bytes(codes[row] for row in rows_of(column.roster, pool))
        counts.append(counts_of(float(column.index * seconds), mine, column.pools[pool][_ON_TIME]))
    return counts


def counts_of(at_s: float, states: bytes | bytearray, on_time: float) -> PoolCounts:
    """Return the counts of one interval, given its engines' states and its share of requests on time (NaN: unknown)."""
    return PoolCounts(
        at_s=at_s,
        running=sum(states.count(state) for state in _WORKING),
        draining=states.count(_DRAINING),
        failed=states.count(LOST),
        on_time=None if math.isnan(on_time) else on_time,
    )
