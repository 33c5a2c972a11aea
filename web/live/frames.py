"""The binary frames of the live feed; frontend/feed/frame_reader.js reads what this writes.

A frame is: uint32 length of the head, the head as JSON padded with spaces to a multiple of four, then
little-endian arrays without gaps. C is the number of columns and S that of the hour strip, both one in
a column frame; E engines and P pools stand in the order of the last keyframe's head:

    float32 now[E][NOW_FLOATS]
    float32 engines[ENGINE_FLOATS][E][C]
    float32 pools[POOL_FLOATS][P][C]
    float32 hour[P][S]
    uint8   engines[ENGINE_BYTES][E][C]

NaN and 255 stand for unknown. A column frame with sequence number n is understood by whoever holds
the state of n − 1; anyone else asks for a keyframe.
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

from gateway.fleet_sample import STATES, EngineSample, FleetSample, PoolSample
from web.live.column import (
    COLUMN_S,
    ENGINE_BYTES,
    ENGINE_FLOATS,
    POOL_FLOATS,
    UNKNOWN_BYTE,
    Column,
)
from web.live.history import FleetHistory
from web.live.hour_strip import STRIP_COLUMN_S, STRIP_COLUMNS
from web.live.marker import Marker
from web.live.verdict import judge

PROTOCOL = 1
NOW_FLOATS = ("tokens", "seconds", "running", "bound", "kv", "report_age_s")

Head = dict[str, Any]


def encode_keyframe(history: FleetHistory, seq: int) -> bytes:
    """Return everything a fresh viewer needs: topology, whole history, newest values."""
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
        "engines": [engine_facts(engine) for engine in sample.engines] if sample else [],
        "pools": [pool_facts(pool) for pool in sample.pools] if sample else [],
        "markers": _plain(history.markers.recent()),
        "verdict": msgspec.to_builtins(judge(sample, history.markers.recent())),
    }
    return _pack(head, sample, history.window(), history, STRIP_COLUMNS)


def encode_column(history: FleetHistory, seq: int, before: FleetSample | None, last_marker: int) -> bytes:
    """Return the newest column and what changed since `before`, the sample of frame seq − 1.

    The history must hold a sample, and topology(before) must equal that of the latest.
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
        "markers": _plain(history.markers.recent(last_marker)),
        "verdict": msgspec.to_builtins(judge(sample, history.markers.recent())),
    }
    return _pack(head, sample, [newest], history, 1)


def topology(sample: FleetSample | None) -> tuple[object, ...]:
    """Return what decides the shape of the arrays and the pools' facts; a change needs a new keyframe."""
    if sample is None:
        return ()
    engines = tuple((engine.engine_id, engine.name, engine.pool_id) for engine in sample.engines)
    return engines, tuple(tuple(pool_facts(pool).values()) for pool in sample.pools)


def engine_facts(engine: EngineSample) -> Head:
    """Return the words about an engine that change seldom."""
    return {
        "id": engine.engine_id,
        "name": engine.name,
        "pool": engine.pool_id,
        "incarnation": engine.incarnation,
        "state": engine.state if engine.state in STATES else "unknown",
        "reason": engine.reason,
        "since": engine.since,
        "trust": engine.index_trust,
    }


def pool_facts(pool: PoolSample) -> Head:
    """Return the words about a pool, which change only with topology or policy."""
    return {
        "id": pool.pool_id,
        "name": pool.name,
        "region": pool.region,
        "served_model": pool.served_model,
        "placement": pool.placement,
        "order": pool.order,
        "policy_version": pool.policy_version,
        "ttft_slo_s": pool.ttft_slo_s,
        "tokens_per_s": pool.tokens_per_s,
    }


def _changed_facts(before: FleetSample | None, sample: FleetSample) -> list[tuple[int, Head]]:
    """Return (row, facts) of the engines whose words differ from those of the same row in `before`."""
    old = [engine_facts(engine) for engine in before.engines] if before else []
    new = [engine_facts(engine) for engine in sample.engines]
    return [(row, facts) for row, facts in enumerate(new) if row >= len(old) or old[row] != facts]


def _plain(markers: Sequence[Marker]) -> list[Head]:
    return [msgspec.to_builtins(marker) for marker in markers]


def _pack(
    head: Head, sample: FleetSample | None, columns: Sequence[Column | None], history: FleetHistory, strip_columns: int
) -> bytes:
    text = json.dumps(head, separators=(",", ":"), allow_nan=False).encode()
    text += b" " * (-len(text) % 4)
    engines = sample.engines if sample else ()
    pools = sample.pools if sample else ()
    parts = [struct.pack("<I", len(text)), text, _floats(_now(engine) for engine in engines)]
    parts += [_engine_floats(engines, columns, place) for place in range(len(ENGINE_FLOATS))]
    parts += [_pool_floats(pools, columns, place) for place in range(len(POOL_FLOATS))]
    parts.append(_floats(history.hour.series(pool.pool_id, strip_columns) for pool in pools))
    parts += [_engine_bytes(engines, columns, place) for place in range(len(ENGINE_BYTES))]
    return b"".join(parts)


def _now(engine: EngineSample) -> list[float]:
    """Return the engine's newest values in the order of NOW_FLOATS."""
    return [
        engine.outstanding_tokens,
        engine.outstanding_s,
        engine.running,
        engine.bound,
        math.nan if engine.kv_usage is None else engine.kv_usage,
        math.nan if engine.report_age_s is None else engine.report_age_s,
    ]


def _floats(rows: Iterable[Sequence[float]]) -> bytes:
    values = array("f")
    for row in rows:
        values.extend(row)
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()


def _engine_floats(engines: Sequence[EngineSample], columns: Sequence[Column | None], place: int) -> bytes:
    def row(engine_id: str) -> list[float]:
        cells = (column.engines.get(engine_id) if column else None for column in columns)
        return [cell.floats[place] if cell else math.nan for cell in cells]

    return _floats(row(engine.engine_id) for engine in engines)


def _pool_floats(pools: Sequence[PoolSample], columns: Sequence[Column | None], place: int) -> bytes:
    def row(pool_id: str) -> list[float]:
        values = (column.pools.get(pool_id) if column else None for column in columns)
        return [value[place] if value else math.nan for value in values]

    return _floats(row(pool.pool_id) for pool in pools)


def _engine_bytes(engines: Sequence[EngineSample], columns: Sequence[Column | None], place: int) -> bytes:
    values = bytearray()
    for engine in engines:
        for column in columns:
            cell = column.engines.get(engine.engine_id) if column else None
            values.append(cell.bytes[place] if cell else UNKNOWN_BYTE)
    return bytes(values)
