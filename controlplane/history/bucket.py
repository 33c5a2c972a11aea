"""One time interval of the fleet: figures of each engine and each pool."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from controlplane.history.roster import HistoryRoster
from gateway.contracts.fleet_sample import STATES, FleetSample, PoolSample
from gateway.contracts.outcomes import OutcomeCounts

LOST = STATES.index("lost")
UNKNOWN_STATE = STATES.index("unknown")
UNKNOWN_BYTE = 255
"""Value of a byte series without data or without a report from the engine."""

PEAK_FLOATS = ("tokens", "seconds", "running", "bound")
MEAN_FLOATS = ("mean_s", "mean_tokens")
ENGINE_FLOATS = PEAK_FLOATS + MEAN_FLOATS
"""Peaks within the interval, then means over its samples."""
ENGINE_BYTES = ("state", "kv", "hit", "predicted")
"""Last value within the interval: index into STATES, and shares in half percents. An engine that was lost at any time
in the interval counts as lost, so that short losses are visible.
"""
POOL_FLOATS = (
    "cv",
    "on_time",
    "hit",
    "ttft_p50_s",
    "ttft_p90_s",
    "ttft_p99_s",
    "requests_per_s",
    "prompt_tokens_per_s",
    "unbound",
    "unbound_tokens",
    "oldest_wait_s",
    "late",
    "bound",
    "dispatched_at_once_per_s",
    "dispatched_waited_per_s",
    "queue_wait_mean_s",
    "queue_wait_p90_s",
    "migrations_per_s",
    "overtaken_per_s",
    "rejections_per_s",
    "failed",
    "rejected",
    "on_time_requests",
    "counted_requests",
)
"""Values within the interval, as `merge` combines those of its samples. New ones are added at the end, because stored
rows lack them. The last two count the requests that ended since the previous sample, however long ago that was: those
on time, and those that count for the objective.
"""
_OTHER_NAMES = {"cv": "load_cv", "on_time": "on_time_share", "hit": "hit_share"}
_RATES = POOL_FLOATS.index("rejections_per_s")
_pool_values = attrgetter(*(_OTHER_NAMES.get(name, name) for name in POOL_FLOATS[:-2] if name != POOL_FLOATS[_RATES]))
"""Read a pool sample's values in the order of POOL_FLOATS. Rejections are stored separately, by code."""


@dataclass(frozen=True, slots=True)
class Column:
    """Arrays in the roster's order."""

    index: int
    """Start of the column in unix seconds, divided by its length."""
    roster: HistoryRoster
    samples: int = 0
    floats: list[array[float]] = field(default_factory=list)
    """One array of float32 per name in ENGINE_FLOATS; NaN: unknown."""
    codes: list[bytearray] = field(default_factory=list)
    """One array per name in ENGINE_BYTES."""
    pools: dict[str, list[float]] = field(default_factory=dict)
    """Pool id → values in the order of POOL_FLOATS; NaN: unknown."""
    rejections: dict[str, dict[str, float]] = field(default_factory=dict)
    """Pool id → rejections per second by code. Pools and codes without rejections are omitted."""

    def floats_for(self, roster: HistoryRoster, series: int) -> array[float]:
        """Return series `series` of ENGINE_FLOATS in the order of `roster`.

        The value is NaN for engines not in this column.
        """
        values = self.floats[series]
        if roster is self.roster:
            return values
        mine = self.roster.row_of
        rows = (mine.get(engine_id) for engine_id in roster.engine_ids)
        return array("f", [math.nan if row is None else values[row] for row in rows])

    def codes_for(self, roster: HistoryRoster, series: int) -> bytes | bytearray:
        """Return series `series` of ENGINE_BYTES in the order of `roster`.

        Engines not in this column have UNKNOWN_BYTE.
        """
        values = self.codes[series]
        if roster is self.roster:
            return values
        mine = self.roster.row_of
        rows = (mine.get(engine_id) for engine_id in roster.engine_ids)
        return bytes(UNKNOWN_BYTE if row is None else values[row] for row in rows)


def share_byte(share: float | None) -> int:
    """Return a share 0..1 in half percents (0..200); UNKNOWN_BYTE for None."""
    if share is None or math.isnan(share):
        return UNKNOWN_BYTE
    return round(max(0.0, min(1.0, share)) * 200)


def state_byte(state: str) -> int:
    """Return the state's index in STATES. A state from a newer program counts as unknown."""
    return STATES.index(state) if state in STATES else UNKNOWN_STATE


def pool_floats(pool: PoolSample, before: OutcomeCounts | None) -> list[float]:
    """Return the pool's values in the order of POOL_FLOATS; NaN: unknown. `before`: the previous sample's outcomes."""
    rejected = None if pool.rejections_per_s is None else sum(pool.rejections_per_s.values())
    values = [*_pool_values(pool)]
    values.insert(_RATES, rejected)
    ended = pool.outcomes.total if pool.outcomes is not None else None
    # Merged outcomes only increase; lower ones mean that the merge began again, with an unknown part counted before.
    if ended is not None and before is not None and ended.requests >= before.requests:
        values += [ended.on_time - before.on_time, ended.requests - before.requests]
    else:
        values += [None, None]
    return [math.nan if value is None else float(value) for value in values]


def column_of(
    index: int,
    roster: HistoryRoster,
    sample: FleetSample,
    shares: Sequence[bytes],
    before: Mapping[str, OutcomeCounts],
) -> Column:
    """Return the column of one sample.

    `shares` are the bytes of `hit` and `predicted`, in the roster's order. `before` are the outcomes by pool in the
    previous sample.
    """
    engines = sample.engines
    seconds = array("f", [engine.in_flight_s for engine in engines])
    tokens = array("f", [engine.in_flight_tokens for engine in engines])
    running, bound = (array("f", [getattr(item, name) for item in engines]) for name in ("running", "bound"))
    states = bytearray(state_byte(engine.state) for engine in engines)
    return Column(
        index,
        roster,
        1,
        [tokens, seconds, running, bound, seconds, tokens],
        [states, bytearray(share_byte(engine.kv_usage) for engine in engines), *map(bytearray, shares)],
        {pool.pool_id: pool_floats(pool, before.get(pool.pool_id)) for pool in sample.pools},
        {pool.pool_id: pool.rejections_per_s for pool in sample.pools if pool.rejections_per_s},
    )


def peak(one: float, other: float) -> float:
    """Return the larger known value; NaN if both are unknown."""
    return one if one >= other or math.isnan(other) else other
