"""Decodes frames of the live feed in Python, as the browser does in JavaScript, and applies columns to a state."""

from __future__ import annotations

import json
import struct
from array import array
from dataclasses import dataclass, field
from typing import Any

from controlplane.history.bucket import ENGINE_BYTES
from web.live.frames import NOW_FLOATS, WIRE_FLOATS, WIRE_POOL_FLOATS


@dataclass
class Frame:
    """A decoded frame. Each series is a list of rows with one value per column."""

    head: dict[str, Any]
    now: list[list[float]]
    engines: dict[str, list[list[float]]]
    pools: dict[str, list[list[float]]]
    hour: list[list[float]]
    bytes: dict[str, list[list[int]]] = field(default_factory=dict)


def read_frame(data: bytes, engines: int | None = None, pools: int | None = None) -> Frame:
    """Decode a frame. A column frame needs the numbers of engines and pools of its keyframe."""
    (length,) = struct.unpack_from("<I", data)
    assert length % 4 == 0
    head = json.loads(data[4 : 4 + length])
    keyframe = head["kind"] == "keyframe"
    engines = len(head["engines"]) if keyframe else engines or 0
    pools = len(head["pools"]) if keyframe else pools or 0
    columns = head.get("columns", 1)
    strip = head.get("strip_columns", 1)
    offset = 4 + length

    def rows(code: str, count: int, width: int) -> list[list[Any]]:
        nonlocal offset
        values = array(code)
        size = count * width * values.itemsize
        values.frombytes(data[offset : offset + size])
        offset += size
        return [list(values[row * width : (row + 1) * width]) for row in range(count)]

    now = rows("f", engines, len(NOW_FLOATS))
    engine_floats = {name: rows("f", engines, columns) for name in WIRE_FLOATS}
    pool_floats = {name: rows("f", pools, columns) for name in WIRE_POOL_FLOATS}
    hour = rows("f", pools, strip)
    engine_bytes = {name: rows("B", engines, columns) for name in ENGINE_BYTES}
    assert offset == len(data)
    return Frame(head, now, engine_floats, pool_floats, hour, engine_bytes)


def apply_column(state: Frame, column: Frame) -> None:
    """Turn the state of a keyframe into that of the next sample. The column must follow it directly."""
    head = state.head
    assert column.head["seq"] == head["seq"] + 1
    _shift([*_all_rows(state)], [*_all_rows(column)], column.head["index"] - head["index"])
    _shift(state.hour, column.hour, column.head["strip_index"] - head["strip_index"])
    for row, facts in column.head["facts"]:
        head["engines"][row] = facts
    oldest = (column.head["index"] - head["columns"] + 1) * head["column_s"]
    replaced = {marker["replaces"] for marker in column.head["markers"]}
    kept = [marker for marker in head["markers"] if marker["number"] not in replaced]
    head["markers"] = [m for m in (*kept, *column.head["markers"]) if m["at"] >= oldest]
    head["rejections"] = _moved(head, column.head["index"] - head["index"], 1) + [
        [pool, head["columns"] - 1, codes] for pool, _, codes in column.head["rejections"]
    ]
    for name in ("seq", "at", "index", "strip_index", "verdict", "window_s", "snapshot_version"):
        head[name] = column.head[name]
    state.now = column.now


def apply_more(state: Frame, more: Frame) -> None:
    """Append `more` to an earlier view of the past; its last columns may be sent again."""
    count, by = more.head["columns"], more.head["index"] - state.head["index"]
    for row, new in zip(_all_rows(state), _all_rows(more), strict=True):
        unknown = 255 if isinstance(new[0], int) else float("nan")
        del row[:by]
        row.extend([unknown] * by)
        row[-count:] = new
    state.hour, state.now = more.hour, more.now
    rejections = _moved(state.head, by, count)
    begin = state.head["columns"] - count
    rejections += [[pool, begin + column, codes] for pool, column, codes in more.head["rejections"]]
    state.head |= {name: value for name, value in more.head.items() if name not in ("kind", "columns")}
    state.head["rejections"] = rejections


def _moved(head: dict[str, Any], by: int, renewed: int) -> list[list[Any]]:
    """Return the rejections of a header `by` columns later, without those of the `renewed` last columns."""
    last = head["columns"] - renewed
    return [[pool, column - by, codes] for pool, column, codes in head["rejections"] if 0 <= column - by < last]


def _all_rows(frame: Frame) -> list[list[Any]]:
    return [row for series in (frame.engines, frame.pools, frame.bytes) for rows in series.values() for row in rows]


def _shift(rows: list[list[Any]], newest: list[list[Any]], by: int) -> None:
    for row, new in zip(rows, newest, strict=True):
        unknown = 255 if isinstance(new[0], int) else float("nan")
        del row[:by]
        row.extend([unknown] * by)
        row[-1] = new[0]
