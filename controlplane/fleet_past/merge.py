"""Makes one long column of several short ones."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence

from controlplane.fleet_past.column import (
    ENGINE_BYTES,
    ENGINE_FLOATS,
    LOST,
    PEAK_FLOATS,
    POOL_FLOATS,
    UNKNOWN_BYTE,
    Column,
    peak,
)
from controlplane.fleet_past.roster import Roster, union

_BY_REQUESTS = frozenset({"on_time", "ttft_p50_s", "ttft_p90_s"})
_BY_TOKENS = frozenset({"hit"})
_MEANS = frozenset({"cv", "requests_per_s", "prompt_tokens_per_s"})
_REQUESTS = POOL_FLOATS.index("requests_per_s")
_TOKENS = POOL_FLOATS.index("prompt_tokens_per_s")


def merge(index: int, columns: Sequence[Column]) -> Column:
    """Return column `index` made of shorter ones, oldest first; there must be at least one.

    Peaks stay peaks, means are weighted by samples, an engine lost in any of them is lost. A pool's shares
    and its p50 and p90 are weighted by its requests, which is exact for shares; p99 and queue are the
    highest of any part; rates and CV are means.
    """
    rosters = {id(column.roster): column.roster for column in columns}
    roster = columns[-1].roster if len(rosters) == 1 else union(rosters.values(), last=columns[-1].roster)
    samples = [column.samples for column in columns]
    merged = Column(index, roster, sum(samples))
    for place, name in enumerate(ENGINE_FLOATS):
        series = [column.floats_for(roster, place) for column in columns]
        merged.floats.append(_peaks(series) if name in PEAK_FLOATS else _means(series, samples))
    for place, name in enumerate(ENGINE_BYTES):
        parts = [column.codes_for(roster, place) for column in columns]
        merged.codes.append(_last(parts, sticky=LOST if name == "state" else None))
    for pool_id in dict.fromkeys(pool_id for column in columns for pool_id in column.pools):
        merged.pools[pool_id] = _pool([column.pools[pool_id] for column in columns if pool_id in column.pools])
    return merged


def merged_by(columns: Iterable[Column], factor: int) -> dict[int, Column]:
    """Return columns `factor` times as long, by their index; those that are not full are there too."""
    groups: dict[int, list[Column]] = {}
    for column in columns:
        groups.setdefault(column.index // factor, []).append(column)
    return {index: merge(index, parts) for index, parts in groups.items()}


def on_roster(column: Column, roster: Roster) -> Column:
    """Return the column in the order of another roster."""
    return Column(
        column.index,
        roster,
        column.samples,
        [column.floats_for(roster, place) for place in range(len(ENGINE_FLOATS))],
        [bytearray(column.codes_for(roster, place)) for place in range(len(ENGINE_BYTES))],
        column.pools,
    )


def _peaks(series: Sequence[array[float]]) -> array[float]:
    merged = series[0]
    for values in series[1:]:
        merged = array("f", map(peak, merged, values))
    return merged


def _means(series: Sequence[array[float]], weights: Sequence[int]) -> array[float]:
    if len(series) == 1:
        return series[0]
    return array("f", (_weighted(values, weights) for values in zip(*series, strict=True)))


def _last(parts: Sequence[bytes | bytearray], sticky: int | None) -> bytearray:
    merged = bytearray()
    for values in zip(*parts, strict=True):
        known = [value for value in values if value != UNKNOWN_BYTE]
        merged.append(sticky if sticky is not None and sticky in known else known[-1] if known else UNKNOWN_BYTE)
    return merged


def _pool(parts: Sequence[Sequence[float]]) -> list[float]:
    requests = [part[_REQUESTS] for part in parts]
    tokens = [part[_TOKENS] for part in parts]
    ones = [1.0] * len(parts)
    merged = []
    for place, name in enumerate(POOL_FLOATS):
        values = [part[place] for part in parts]
        if name in _BY_REQUESTS or name in _BY_TOKENS or name in _MEANS:
            weights = requests if name in _BY_REQUESTS else tokens if name in _BY_TOKENS else ones
            merged.append(_weighted(values, weights))
        else:
            merged.append(max(_known(values), default=math.nan))
    return merged


def _known(values: Iterable[float]) -> list[float]:
    return [value for value in values if not math.isnan(value)]


def _weighted(values: Iterable[float], weights: Iterable[float]) -> float:
    """Return the weighted mean of the known values; NaN where nothing is known or nothing weighs."""
    total = weight_sum = 0.0
    for value, weight in zip(values, weights, strict=True):
        if not math.isnan(value) and weight > 0:
            total += value * weight
            weight_sum += weight
    return total / weight_sum if weight_sum else math.nan
