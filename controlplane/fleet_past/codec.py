"""One pool's part of a column as a few compressed bytes, and back.

Floats of engines are stored as half floats (11 significant bits, an error below 0.05 %), tokens in
units of 64 so that four million still fit; those of the pool as float32. Names and pool facts are not in
it: they are the same for thousands of rows, which point to one stored roster.

Measured sizes, 16 B per engine and 60 B per pool before compression: about 200 B for 8 engines, 11 kB
for 1,000 (tests/controlplane/fleet_past/test_codec.py holds them down).
"""

from __future__ import annotations

import math
import struct
import zlib
from array import array
from collections.abc import Sequence

import msgspec

from controlplane.fleet_past.column import ENGINE_BYTES, ENGINE_FLOATS, POOL_FLOATS, Column
from controlplane.fleet_past.marker import Marker
from controlplane.fleet_past.roster import Roster

FORMAT = 1
TOKENS_UNIT = 64.0
LARGEST_HALF = 65_504.0
MAX_BYTES = 8 << 20
"""A row says how long it is when unpacked; none may say more than this (60,000 engines)."""
_IN_UNITS = frozenset({"tokens", "mean_tokens"})


class UnreadableRollupError(ValueError):
    """The bytes are no roll-up of this program's format."""


class _Stored(msgspec.Struct, array_like=True):
    format: int
    samples: int
    engines: int
    floats: bytes
    codes: bytes
    pool: bytes
    markers: list[Marker]


class PoolPart(msgspec.Struct):
    """What one pool's row holds, with engines in the order of its roster."""

    samples: int
    floats: list[array[float]]
    codes: list[bytearray]
    pool: list[float]
    markers: list[Marker]


def rows_of(roster: Roster, pool_id: str) -> list[int]:
    """Return the places of a pool's engines in a column's roster."""
    return [row for row, pool in enumerate(roster.pool_ids) if pool == pool_id]


def encode_part(column: Column, pool_id: str, rows: Sequence[int], markers: Sequence[Marker]) -> bytes:
    """Return the bytes of a pool's part of the column; `rows` are the places of its engines."""
    halves: list[float] = []
    for place, name in enumerate(ENGINE_FLOATS):
        unit = TOKENS_UNIT if name in _IN_UNITS else 1.0
        values = column.floats[place]
        # A comparison with NaN is false, so unknown stays unknown.
        most = LARGEST_HALF * unit
        halves += [LARGEST_HALF if values[row] > most else values[row] / unit for row in rows]
    stored = _Stored(
        FORMAT,
        column.samples,
        len(rows),
        struct.pack(f"<{len(halves)}e", *halves),
        b"".join(bytes(series[row] for row in rows) for series in column.codes),
        struct.pack(f"<{len(POOL_FLOATS)}f", *column.pools[pool_id]),
        list(markers),
    )
    return zlib.compress(msgspec.msgpack.encode(stored), 6)


def decode_part(data: bytes) -> PoolPart:
    """Return what `encode_part` stored; raises UnreadableRollupError for anything else."""
    try:
        unpacker = zlib.decompressobj()
        stored = msgspec.msgpack.decode(unpacker.decompress(data, MAX_BYTES), type=_Stored)
        if stored.format != FORMAT:
            raise UnreadableRollupError(f"format {stored.format} is not {FORMAT}")
        count = stored.engines
        halves = struct.unpack(f"<{count * len(ENGINE_FLOATS)}e", stored.floats)
        pool = list(struct.unpack(f"<{len(POOL_FLOATS)}f", stored.pool))
    except (zlib.error, msgspec.DecodeError, struct.error) as error:
        raise UnreadableRollupError(str(error)) from error
    if len(stored.codes) != count * len(ENGINE_BYTES):
        raise UnreadableRollupError(f"{len(stored.codes)} bytes for {count} engines")
    floats = []
    for place, name in enumerate(ENGINE_FLOATS):
        values = halves[place * count : (place + 1) * count]
        floats.append(array("f", [value * TOKENS_UNIT for value in values] if name in _IN_UNITS else values))
    states = [bytearray(stored.codes[place * count : (place + 1) * count]) for place in range(len(ENGINE_BYTES))]
    return PoolPart(stored.samples, floats, states, pool, stored.markers)


def peak_seconds(column: Column, rows: Sequence[int]) -> float:
    """Return the tallest queue of any of the engines, seconds; 0 without engines."""
    seconds = column.floats[ENGINE_FLOATS.index("seconds")]
    return max((seconds[row] for row in rows if not math.isnan(seconds[row])), default=0.0)
