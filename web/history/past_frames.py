"""Encodes the history like the keyframes of the live feed, and the columns that follow a keyframe."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import msgspec

from controlplane.history.bucket import ENGINE_BYTES, LOST, UNKNOWN_BYTE, UNKNOWN_STATE, Column
from gateway.contracts.fleet_sample import STATES
from web.history.past import PastPicture
from web.history.past_verdict import judge_past
from web.live.frames import NOW_FLOATS, PROTOCOL, WIRE_FLOATS, Head, engine_facts, pack, plain, removed_facts

_KV = ENGINE_BYTES.index("kv")
_SERVING = STATES.index("serving")
_NOW = [WIRE_FLOATS.index(name) for name in ("tokens", "seconds", "running", "bound")]


def encode_past(picture: PastPicture, *, after: int | None = None, known: str = "") -> bytes:
    """Return a keyframe of the picture, or a `more` frame with the columns above `after`.

    A `more` frame requires a picture with the same engines and pools. `known` is the `roster` from that picture's head;
    if it differs, the result is a keyframe.
    """
    roster = _digest(picture)
    stretch = picture.stretch
    more = after is not None and known == roster and stretch.first <= after + 1
    first = after + 1 if more and after is not None else stretch.first
    columns = picture.columns[first - stretch.first :]
    head: Head = {
        "kind": "more" if more else "keyframe",
        "protocol": PROTOCOL,
        "seq": -1,
        "range": stretch.range.name,
        "live": stretch.live,
        "roster": roster,
        "at": _at(picture),
        "window_s": 0,
        "snapshot_version": picture.sample.snapshot_version if picture.sample else 0,
        "column_s": stretch.range.column_s,
        "columns": len(columns),
        "index": stretch.last,
        "strip_column_s": stretch.range.strip_column_s,
        "strip_columns": stretch.range.strip_columns,
        "strip_index": stretch.strip_last,
        "states": STATES,
        "markers": plain(picture.markers),
        "verdict": msgspec.to_builtins(_verdict(picture)),
    }
    if not more:
        head["engines"] = _engines(picture)
        head["pools"] = _pools(picture)
    pool_ids = list(picture.pools)
    hour = [picture.strip.series(pool_id, stretch.range.strip_columns, stretch.strip_last) for pool_id in pool_ids]
    return pack(head, _now(picture), columns, picture.roster, pool_ids, hour)


def _digest(picture: PastPicture) -> str:
    pools = [msgspec.to_builtins(facts) for facts in picture.pools.values()]
    data = msgspec.msgpack.encode([picture.roster.engine_ids, picture.roster.names, pools])
    return hashlib.sha256(data).hexdigest()[:16]


def _at(picture: PastPicture) -> float:
    return picture.sample.at if picture.sample else picture.stretch.end


def _verdict(picture: PastPicture) -> msgspec.Struct:
    return judge_past(picture) if picture.verdict is None else picture.verdict


def _pools(picture: PastPicture) -> list[Head]:
    heads = []
    for facts in picture.pools.values():
        head = msgspec.to_builtins(facts)
        head["id"] = head.pop("pool_id")
        heads.append(head)
    return heads


def _engines(picture: PastPicture) -> list[Head]:
    live = {engine.engine_id: engine for engine in picture.sample.engines} if picture.sample else {}
    roster = picture.roster
    heads = []
    for row, engine_id in enumerate(roster.engine_ids):
        engine = live.get(engine_id)
        heads.append(engine_facts(engine) if engine else _past_facts(picture, row))
    return heads


def _past_facts(picture: PastPicture, row: int) -> Head:
    """Return an engine's facts at the end of the picture: its state, and since when within the picture."""
    roster, stretch = picture.roster, picture.stretch
    engine_id = roster.engine_ids[row]
    state, since = UNKNOWN_STATE, stretch.first * stretch.range.column_s
    left = False
    for index in range(len(picture.columns) - 1, -1, -1):
        here = _state(picture.columns[index], engine_id)
        if here == UNKNOWN_BYTE:
            left = left or picture.columns[index] is not None
            continue
        if left and state == UNKNOWN_STATE:
            since = (stretch.first + index + 1) * stretch.range.column_s
            return removed_facts(engine_id, roster.names[row], roster.pool_ids[row], since)
        if state == UNKNOWN_STATE:
            state = here
        if here != state or state == _SERVING:
            since = (stretch.first + index + (here != state)) * stretch.range.column_s
            break
    facts = removed_facts(engine_id, roster.names[row], roster.pool_ids[row], since)
    return {**facts, "state": STATES[state], "removed": engine_id in picture.removed}


def _state(column: Column | None, engine_id: str) -> int:
    row = column.roster.row_of.get(engine_id) if column is not None else None
    return UNKNOWN_BYTE if column is None or row is None else column.codes[0][row]


def _now(picture: PastPicture) -> list[Sequence[float]]:
    """Return the values at the right edge, in the order of NOW_FLOATS."""
    column = next((column for column in reversed(picture.columns) if column is not None), None)
    if column is None:
        return [[math.nan] * len(NOW_FLOATS) for _ in picture.roster.engine_ids]
    floats = [column.floats_for(picture.roster, index) for index in _NOW]
    kv = column.codes_for(picture.roster, _KV)
    states = column.codes_for(picture.roster, 0)
    shares = [math.nan if kv[row] == UNKNOWN_BYTE or states[row] == LOST else kv[row] / 200 for row in range(len(kv))]
    unknown = [math.nan] * (len(NOW_FLOATS) - len(floats) - 1)
    return [[*(series[row] for series in floats), shares[row], *unknown] for row in range(len(shares))]
