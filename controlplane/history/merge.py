"""Merges columns into longer ones: the samples of an interval, then intervals of increasing length."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from operator import mul

from controlplane.history.bucket import (
    ENGINE_BYTES,
    ENGINE_FLOATS,
    LOST,
    PEAK_FLOATS,
    POOL_FLOATS,
    UNKNOWN_BYTE,
    Column,
    peak,
)
from controlplane.history.roster import HistoryRoster, union

_BY_REQUESTS = frozenset({"on_time", "ttft_p50_s", "ttft_p90_s"})
_BY_TOKENS = frozenset({"hit"})
_BY_GRANTS = frozenset({"queue_wait_mean_s", "queue_wait_p90_s"})
_GRANTS = ("dispatched_at_once_per_s", "dispatched_waited_per_s")
_MEANS = frozenset(
    {"cv", "requests_per_s", "prompt_tokens_per_s", "migrations_per_s", "overtaken_per_s", "rejections_per_s", *_GRANTS}
)
_SUMS = frozenset({"on_time_requests", "counted_requests"})
_REQUESTS = POOL_FLOATS.index("requests_per_s")
_TOKENS = POOL_FLOATS.index("prompt_tokens_per_s")
_REJECTIONS = POOL_FLOATS.index("rejections_per_s")
_GRANT_INDEXES = [POOL_FLOATS.index(name) for name in _GRANTS]


def merge(index: int, columns: Sequence[Column], roster: HistoryRoster | None = None) -> Column:
    """Merge shorter columns, oldest first, into column `index`. At least one is required.

    Peaks are maxima, means are weighted by samples, and an engine that was lost in any part is lost. A pool's shares,
    p50, and p90 are weighted by its requests, which is exact for shares. Queue waits are weighted by dispatches, which
    is exact for the mean. The p99, the number of queued requests, and their longest wait are maxima; rates and CV are
    means; ended requests are added. Parts without a figure do not affect it. Without `roster`, the engines of all
    columns are kept.
    """
    if roster is None:
        rosters = {id(column.roster): column.roster for column in columns}
        roster = columns[-1].roster if len(rosters) == 1 else union(rosters.values(), last=columns[-1].roster)
    samples = [column.samples for column in columns]
    merged = Column(index, roster, sum(samples))
    for series_index, name in enumerate(ENGINE_FLOATS):
        series = [column.floats_for(roster, series_index) for column in columns]
        merged.floats.append(_peaks(series) if name in PEAK_FLOATS else _means(series, samples))
    for series_index, name in enumerate(ENGINE_BYTES):
        parts = [column.codes_for(roster, series_index) for column in columns]
        merged.codes.append(_last(parts, sticky=LOST if name == "state" else None))
    for pool_id in dict.fromkeys(pool_id for column in columns for pool_id in column.pools):
        with_pool = [column for column in columns if pool_id in column.pools]
        merged.pools[pool_id] = _pool(
            [column.pools[pool_id] for column in with_pool], [column.samples for column in with_pool]
        )
        if rejections := _rejections(with_pool, pool_id):
            merged.rejections[pool_id] = rejections
    return merged


def merged_by(columns: Iterable[Column], factor: int) -> dict[int, Column]:
    """Return columns `factor` times as long, by index, including incomplete ones."""
    groups: dict[int, list[Column]] = {}
    for column in columns:
        groups.setdefault(column.index // factor, []).append(column)
    return {index: merge(index, parts) for index, parts in groups.items()}


def _peaks(series: Sequence[array[float]]) -> array[float]:
    if len(series) > 1 and all(map(_all_known, series)):
        return array("f", map(max, *series))
    merged = series[0]
    for values in series[1:]:
        merged = array("f", map(peak, merged, values))
    return merged


def _means(series: Sequence[array[float]], weights: Sequence[int]) -> array[float]:
    if len(series) == 1:
        return series[0]
    rows = zip(*series, strict=True)
    total = sum(weights)
    if total and all(map(_all_known, series)):
        return array("f", [sum(map(mul, values, weights)) / total for values in rows])
    return array("f", (_weighted(values, weights) for values in rows))


def _all_known(values: array[float]) -> bool:
    """Return whether no value is NaN, computed from their sum. Infinite values may count as unknown."""
    return not math.isnan(sum(values))


def _last(parts: Sequence[bytes | bytearray], sticky: int | None) -> bytearray:
    """Return each row's newest known byte. If any byte is `sticky`, the result is `sticky`."""
    merged = bytearray(parts[-1])
    for part in reversed(parts[:-1]):
        if UNKNOWN_BYTE not in merged:
            break
        for row in _rows_with(UNKNOWN_BYTE, merged):
            merged[row] = part[row]
    if sticky is not None:
        for part in parts:
            for row in _rows_with(sticky, part):
                merged[row] = sticky
    return merged


def _rows_with(code: int, codes: bytes | bytearray) -> Iterator[int]:
    row = codes.find(code)
    while row >= 0:
        yield row
        row = codes.find(code, row + 1)


def _pool(parts: Sequence[Sequence[float]], samples: Sequence[int]) -> list[float]:
    requests = [part[_REQUESTS] * number for part, number in zip(parts, samples, strict=True)]
    tokens = [part[_TOKENS] * number for part, number in zip(parts, samples, strict=True)]
    grants = [
        sum(_known(part[index] for index in _GRANT_INDEXES)) * number
        for part, number in zip(parts, samples, strict=True)
    ]
    weights: dict[str, Sequence[float]] = {
        **dict.fromkeys(_BY_REQUESTS, requests),
        **dict.fromkeys(_BY_TOKENS, tokens),
        **dict.fromkeys(_BY_GRANTS, grants),
        **dict.fromkeys(_MEANS, samples),
    }
    merged = []
    for index, name in enumerate(POOL_FLOATS):
        values = [part[index] for part in parts]
        if name in weights:
            merged.append(_weighted(values, weights[name]))
        elif name in _SUMS:
            merged.append(sum(known) if (known := _known(values)) else math.nan)
        else:
            merged.append(max(_known(values), default=math.nan))
    return merged


def _rejections(columns: Sequence[Column], pool_id: str) -> dict[str, float]:
    """Return the pool's mean rejection rate by code over the columns that report rejections."""
    reporting = [column for column in columns if not math.isnan(column.pools[pool_id][_REJECTIONS])]
    samples = sum(column.samples for column in reporting)
    rates: dict[str, float] = {}
    for column in reporting:
        for code, rate in column.rejections.get(pool_id, {}).items():
            rates[code] = rates.get(code, 0.0) + rate * column.samples / samples
    return rates


def _known(values: Iterable[float]) -> list[float]:
    return [value for value in values if not math.isnan(value)]


def _weighted(values: Iterable[float], weights: Iterable[float]) -> float:
    """Return the weighted mean of the known values; NaN without known values or weights."""
    total = weight_sum = 0.0
    for value, weight in zip(values, weights, strict=True):
        if not math.isnan(value) and weight > 0:
            total += value * weight
            weight_sum += weight
    return total / weight_sum if weight_sum else math.nan
