"""What one column of the live picture remembers of each engine and each pool."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from gateway.fleet_sample import STATES, EngineSample, FleetSample, PoolSample

COLUMN_S = 2.0
COLUMNS = 150
"""Five minutes of columns."""

_LOST = STATES.index("lost")
UNKNOWN_BYTE = 255
"""In a byte series: no data, or the engine does not say."""

ENGINE_FLOATS = ("tokens", "seconds", "running", "bound")
"""Peaks within the column."""
ENGINE_BYTES = ("state", "kv", "hit")
"""Last value within the column: index into STATES, and shares in half percents. An engine that was lost
at any moment of the column stays lost in it, so that a loss shorter than a column can be seen."""
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
)
"""Last value within the column, except the three of the unbound queue, which are peaks."""
PEAKS = frozenset({"unbound", "unbound_tokens", "oldest_wait_s"})


@dataclass(slots=True)
class EngineCell:
    """One engine in one column; mutable while the column is the newest."""

    floats: list[float]
    bytes: list[int]
    prompt_tokens_total: int
    cached_tokens_total: int


@dataclass(slots=True)
class Column:
    """Two seconds of the fleet."""

    index: int
    """Unix seconds of its start / COLUMN_S."""
    engines: dict[str, EngineCell] = field(default_factory=dict)
    pools: dict[str, list[float]] = field(default_factory=dict)


def column_index(at: float) -> int:
    """Return the absolute number of the column that holds the moment `at` (unix seconds)."""
    return int(at // COLUMN_S)


def share_byte(share: float | None) -> int:
    """Return a share 0..1 in half percents (0..200), UNKNOWN_BYTE for None."""
    if share is None or math.isnan(share):
        return UNKNOWN_BYTE
    return round(max(0.0, min(1.0, share)) * 200)


def state_byte(state: str) -> int:
    """Return the state's place in STATES; a state this program does not know reads as unknown."""
    return STATES.index(state) if state in STATES else STATES.index("unknown")


def engine_floats(engine: EngineSample) -> list[float]:
    """Return the engine's values in the order of ENGINE_FLOATS."""
    return [float(engine.outstanding_tokens), engine.outstanding_s, float(engine.running), float(engine.bound)]


def pool_floats(pool: PoolSample) -> list[float]:
    """Return the pool's values in the order of POOL_FLOATS; NaN stands for unknown."""
    values = (
        pool.load_cv,
        pool.on_time_share,
        pool.hit_share,
        pool.ttft_p50_s,
        pool.ttft_p90_s,
        pool.ttft_p99_s,
        pool.requests_per_s,
        pool.prompt_tokens_per_s,
        pool.unbound,
        pool.unbound_tokens,
        pool.oldest_wait_s,
        pool.late,
    )
    return [math.nan if value is None else float(value) for value in values]


def fold_engine(column: Column, engine: EngineSample, hit_share: float | None) -> None:
    """Raise the engine's peaks in the column and take over its last state and shares."""
    last = [state_byte(engine.state), share_byte(engine.kv_usage), share_byte(hit_share)]
    cell = column.engines.get(engine.engine_id)
    values = engine_floats(engine)
    if cell is None:
        cell = EngineCell(values, last, engine.prompt_tokens_total, engine.cached_tokens_total)
        column.engines[engine.engine_id] = cell
        return
    cell.floats = [max(old, new) for old, new in zip(cell.floats, values, strict=True)]
    if cell.bytes[0] == _LOST:
        last[0] = _LOST
    cell.bytes = last
    cell.prompt_tokens_total = engine.prompt_tokens_total
    cell.cached_tokens_total = engine.cached_tokens_total


def fold_pools(column: Column, sample: FleetSample) -> None:
    """Take over the pools' values, keeping the peaks of their unbound queues."""
    for pool in sample.pools:
        values = pool_floats(pool)
        before = column.pools.get(pool.pool_id)
        if before is not None:
            for place, name in enumerate(POOL_FLOATS):
                if name in PEAKS:
                    values[place] = max(values[place], before[place])
        column.pools[pool.pool_id] = values
