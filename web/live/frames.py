"""The binary frames of the live feed; frontend/live/frame_reader.js reads them.

A frame consists of: uint32 length of the head, the head as JSON padded with spaces to a multiple of four, then
little-endian arrays without gaps. C is the number of columns and S that of the hour strip, as stated in the head, both
one in a column frame; E engines and P pools are in the order of the last keyframe's head, the engines that were removed
within the picture after the others:

    float32 now[E][NOW_FLOATS]
    float32 engines[WIRE_FLOATS][E][C]
    float32 pools[WIRE_POOL_FLOATS][P][C]
    float32 hour[P][S]
    uint8   engines[ENGINE_BYTES][E][C]

The head's `rejections` are [pool, column, {code: per second}] of the columns that have some; pool and column are
indices of the arrays. NaN and 255 mean unknown. A column frame with sequence number n requires the state of n − 1; a
client without it asks for a keyframe. Keyframes of the past (web.history.past) have the same form.
"""

from __future__ import annotations

import json
import math
import struct
import sys
from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from controlplane.history.annotation import Annotation
from controlplane.history.bucket import ENGINE_BYTES, ENGINE_FLOATS, POOL_FLOATS, UNKNOWN_BYTE, Column
from controlplane.history.roster import HistoryRoster
from gateway.contracts.fleet_sample import STATES, EngineSample, FleetSample, PoolSample
from web.live.history import COLUMN_S, RemovedEngine, ScopedHistory
from web.live.peak_strip import STRIP_COLUMN_S, STRIP_COLUMNS
from web.live.verdict import FleetVerdict

PROTOCOL = 4
NOW_FLOATS = ("tokens", "seconds", "running", "bound", "kv", "report_age_s", "oldest_s")
WIRE_FLOATS = ENGINE_FLOATS[:5]
WIRE_POOL_FLOATS = POOL_FLOATS[: POOL_FLOATS.index("on_time_requests")]
"""The mean of tokens is stored but not sent, because it carries the same information as the mean of seconds."""

REMOVED = "removed"
"""State of an engine that has left the fleet by the end of a picture; no sample uses it."""

Head = dict[str, Any]


def encode_keyframe(history: ScopedHistory, seq: int, verdict: FleetVerdict) -> bytes:
    """Return everything that a new viewer needs: topology, full history, and newest values."""
    sample = history.latest
    newest = history.newest
    head: Head = {
        "kind": "keyframe",
        "protocol": PROTOCOL,
        "seq": seq,
        "at": sample.at if sample else None,
        "window_s": sample.window_s if sample else 0,
        "snapshot_version": sample.snapshot_version if sample else 0,
        "column_s": COLUMN_S,
        "columns": history.capacity,
        "index": newest.index if newest else None,
        "strip_column_s": STRIP_COLUMN_S,
        "strip_columns": STRIP_COLUMNS,
        "strip_index": history.hour.newest_index,
        "states": STATES,
        "engines": [*map(engine_facts, sample.engines if sample else ()), *map(_removed_facts, history.removed)],
        "pools": [pool_facts(pool) for pool in sample.pools] if sample else [],
        "markers": plain(history.markers()),
        "verdict": msgspec.to_builtins(verdict),
    }
    return _pack_live(head, sample, history.window(), history, STRIP_COLUMNS)


def encode_column(
    history: ScopedHistory, seq: int, before: FleetSample | None, last_marker: int, verdict: FleetVerdict
) -> bytes:
    """Return the newest column and the changes since `before`, the sample of frame seq − 1.

    The history must hold a sample; topology(before) and the removed engines must be those of frame seq − 1.
    """
    sample, newest = history.latest, history.newest
    if sample is None or newest is None:
        raise ValueError("no sample yet: a column frame has nothing to say")
    head: Head = {
        "kind": "column",
        "seq": seq,
        "at": sample.at,
        "window_s": sample.window_s,
        "snapshot_version": sample.snapshot_version,
        "index": newest.index,
        "strip_index": history.hour.newest_index,
        "facts": _changed_facts(before, sample),
        "markers": plain(history.markers(last_marker)),
        "verdict": msgspec.to_builtins(verdict),
    }
    return _pack_live(head, sample, [newest], history, 1)


def topology(sample: FleetSample | None) -> tuple[object, ...]:
    """Return what determines the array shapes, and the pools' facts. A change requires a new keyframe."""
    if sample is None:
        return ()
    engines = tuple((engine.engine_id, engine.name, engine.pool_id) for engine in sample.engines)
    return engines, tuple(tuple(pool_facts(pool).values()) for pool in sample.pools)


def engine_facts(engine: EngineSample) -> Head:
    """Return the facts of an engine that rarely change."""
    return {
        "id": engine.engine_id,
        "name": engine.name,
        "pool": engine.pool_id,
        "incarnation": engine.incarnation,
        "state": engine.state if engine.state in STATES else "unknown",
        "reason": engine.reason,
        "since": engine.since,
        "trust": engine.index_trust,
        "trust_reason": engine.index_trust_reason,
        "role": engine.role,
    }


def removed_facts(engine_id: str, name: str, pool_id: str, since: float) -> Head:
    """Return the facts of an engine that has left the fleet by the end of a picture."""
    return {
        "id": engine_id,
        "name": name,
        "pool": pool_id,
        "incarnation": 0,
        "state": REMOVED,
        "reason": "",
        "since": since,
        "trust": "",
        "trust_reason": "",
        "role": "",
        "removed": True,
    }


def _removed_facts(engine: RemovedEngine) -> Head:
    return removed_facts(engine.engine_id, engine.name, engine.pool_id, engine.since)


def pool_facts(pool: PoolSample) -> Head:
    """Return the facts of a pool, which change only with topology or policy."""
    return {
        "id": pool.pool_id,
        "name": pool.name,
        "region": pool.region,
        "served_model": pool.served_model,
        "placement": pool.placement,
        "order": pool.order,
        "admission": pool.admission,
        "policy_version": pool.policy_version,
        "ttft_slo_s": pool.ttft_slo_s,
        "tokens_per_s": pool.tokens_per_s,
        "observes": pool.observes,
    }


def plain(markers: Iterable[Annotation]) -> list[Head]:
    """Return markers in the head's format."""
    return [msgspec.to_builtins(marker) for marker in markers]


def pack(
    head: Head,
    now: Iterable[Sequence[float]],
    columns: Sequence[Column | None],
    roster: HistoryRoster,
    pool_ids: Sequence[str],
    hour: Iterable[Sequence[float]],
) -> bytes:
    """Return a frame; `now` has a row per engine in roster order, `hour` a row per pool."""
    head = {**head, "rejections": _rejections(pool_ids, columns)}
    # The browser's JSON has no NaN.
    text = json.dumps(head, separators=(",", ":"), allow_nan=False).encode()
    # In the browser, a Float32Array begins at a multiple of four bytes.
    text += b" " * (-len(text) % 4)
    parts = [struct.pack("<I", len(text)), text, _floats(now)]
    parts += [_engine_floats(columns, roster, index) for index in range(len(WIRE_FLOATS))]
    parts += [_pool_floats(pool_ids, columns, index) for index in range(len(WIRE_POOL_FLOATS))]
    parts.append(_floats(hour))
    parts += [_engine_bytes(columns, roster, index) for index in range(len(ENGINE_BYTES))]
    return b"".join(parts)


def _pack_live(
    head: Head, sample: FleetSample | None, columns: Sequence[Column | None], history: ScopedHistory, strip_columns: int
) -> bytes:
    pool_ids = [pool.pool_id for pool in sample.pools] if sample else []
    now = [_now(engine) for engine in sample.engines] if sample else []
    now += [[math.nan] * len(NOW_FLOATS)] * len(history.removed)
    hour = (history.hour.series(pool_id, strip_columns) for pool_id in pool_ids)
    return pack(head, now, columns, history.roster, pool_ids, hour)


def _changed_facts(before: FleetSample | None, sample: FleetSample) -> list[tuple[int, Head]]:
    """Return (row, facts) of engines whose facts changed since `before`."""
    old = before.engines if before else ()
    return [
        (row, engine_facts(engine))
        for row, engine in enumerate(sample.engines)
        if row >= len(old) or _words(old[row]) != _words(engine)
    ]


def _words(engine: EngineSample) -> tuple[object, ...]:
    """Return the facts of `engine_facts`, except id, name, and pool."""
    trust = engine.index_trust, engine.index_trust_reason
    return engine.state, engine.reason, engine.since, engine.incarnation, *trust, engine.role


def _now(engine: EngineSample) -> list[float]:
    """Return the engine's newest values in the order of NOW_FLOATS."""
    return [
        engine.in_flight_tokens,
        engine.in_flight_s,
        engine.running,
        engine.bound,
        math.nan if engine.kv_usage is None else engine.kv_usage,
        math.nan if engine.report_age_s is None else engine.report_age_s,
        math.nan if engine.oldest_bound_s is None else engine.oldest_bound_s,
    ]


def _rejections(pool_ids: Sequence[str], columns: Sequence[Column | None]) -> list[tuple[int, int, dict[str, float]]]:
    """Return [pool, column, rejections by code] for columns that have some, rounded to four digits for display."""
    return [
        (pool, index, {code: float(f"{rate:.4g}") for code, rate in sorted(column.rejections[pool_id].items())})
        for index, column in enumerate(columns)
        if column is not None and column.rejections
        for pool, pool_id in enumerate(pool_ids)
        if pool_id in column.rejections
    ]


def _floats(rows: Iterable[Sequence[float]]) -> bytes:
    values = array("f")
    for row in rows:
        values.extend(row)
    return _little_endian(values)


def _little_endian(values: array[float]) -> bytes:
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()


def _engine_floats(columns: Sequence[Column | None], roster: HistoryRoster, index: int) -> bytes:
    """Return a series engine by engine. Columns are stored by time, so it is transposed."""
    unknown = array("f", [math.nan]) * len(roster)
    flat = array("f")
    for column in columns:
        flat.extend(unknown if column is None else column.floats_for(roster, index))
    if len(columns) == 1:
        return _little_endian(flat)
    turned = array("f")
    for row in range(len(roster)):
        turned.extend(flat[row :: len(roster)])
    return _little_endian(turned)


def _engine_bytes(columns: Sequence[Column | None], roster: HistoryRoster, index: int) -> bytes:
    unknown = bytes([UNKNOWN_BYTE]) * len(roster)
    flat = b"".join(unknown if column is None else column.codes_for(roster, index) for column in columns)
    if len(columns) == 1:
        return flat
    return b"".join(flat[row :: len(roster)] for row in range(len(roster)))


def _pool_floats(pool_ids: Sequence[str], columns: Sequence[Column | None], index: int) -> bytes:
    def row(pool_id: str) -> list[float]:
        values = (column.pools.get(pool_id) if column else None for column in columns)
        return [value[index] if value else math.nan for value in values]

    return _floats(row(pool_id) for pool_id in pool_ids)
