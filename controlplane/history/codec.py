"""Encodes one pool's part of a column as compressed bytes, and decodes it.

Floats of engines keep 11 significant bits (error below 0.05 %). Floats of the pool are float32. A float32 with so few
bits has a zero lowest byte, and the other three are stored in planes, all highest bytes first. That compresses like
half floats and unpacks four times as fast. Names and pool facts are not included, because thousands of rows refer to
one stored roster with them.

Measured sizes, 22 B per engine and 96 B per pool before compression: about 230 B for 8 engines, 11 kB for 1,000 (limits
in tests/controlplane/history/test_codec.py).
"""

from __future__ import annotations

import math
import struct
import sys
import zlib
from array import array
from collections.abc import Sequence

import msgspec

from controlplane.history.annotation import Annotation
from controlplane.history.bucket import ENGINE_BYTES, ENGINE_FLOATS, POOL_FLOATS, Column
from controlplane.history.roster import HistoryRoster
from routing.values.prepared_struct import prepared

FORMAT = 1
MAX_BYTES = 8 << 20
"""Maximum unpacked length, which each row states. A longer row (60,000 engines) is rejected."""
_ROUND, _KEPT = 0x1000, 0xFFFFE000
"""Rounding term added to the bits of a float32, and the mask of the bits kept: 10 of its 23 fraction bits."""
_PLANES = (3, 2, 1)
"""Indexes of the stored bytes of a little-endian float32. Byte 0 is always zero."""


class UnreadableRollupError(ValueError):
    """The bytes are not a roll-up in this program's format."""


class _Stored(msgspec.Struct, array_like=True):
    format: int
    samples: int
    engines: int
    floats: bytes
    codes: bytes
    pool: bytes
    markers: list[Annotation]
    rejections: dict[str, float]


class PoolPart(msgspec.Struct):
    """The content of one pool's row. Engines are in the order of its roster."""

    samples: int
    floats: list[array[float]]
    codes: list[bytearray]
    pool: list[float]
    markers: list[Annotation]
    rejections: dict[str, float]


def rows_of(roster: HistoryRoster, pool_id: str) -> list[int]:
    """Return the row numbers of a pool's engines in a column's roster."""
    return [row for row, pool in enumerate(roster.pool_ids) if pool == pool_id]


def encode_part(column: Column, pool_id: str, rows: Sequence[int], markers: Sequence[Annotation]) -> bytes:
    """Encode a pool's part of the column. `rows` are the row numbers of its engines."""
    values = array("f")
    for series in column.floats:
        values.extend(array("f", [series[row] for row in rows]))
    stored = _Stored(
        FORMAT,
        column.samples,
        len(rows),
        _planes(values),
        b"".join(bytes(series[row] for row in rows) for series in column.codes),
        struct.pack(f"<{len(POOL_FLOATS)}f", *column.pools[pool_id]),
        list(markers),
        column.rejections.get(pool_id, {}),
    )
    return zlib.compress(msgspec.msgpack.encode(stored), 6)


def decode_part(data: bytes) -> PoolPart:
    """Decode the bytes from `encode_part`. Raises UnreadableRollupError for any other bytes."""
    try:
        unpacker = zlib.decompressobj()
        # The limit keeps a damaged row from filling the memory.
        stored = msgspec.msgpack.decode(unpacker.decompress(data, MAX_BYTES), type=prepared(_Stored))
        if stored.format != FORMAT:
            raise UnreadableRollupError(f"format {stored.format}, not {FORMAT}")
        count = stored.engines
        pool = [*struct.unpack(f"<{len(stored.pool) // 4}f", stored.pool)]
        pool += [math.nan] * (len(POOL_FLOATS) - len(pool))
    except (zlib.error, msgspec.DecodeError, struct.error) as error:
        raise UnreadableRollupError(str(error)) from error
    sizes = len(stored.floats), len(stored.codes)
    # Other sizes would shift the values of all engines.
    if sizes != (count * len(ENGINE_FLOATS) * len(_PLANES), count * len(ENGINE_BYTES)):
        raise UnreadableRollupError(f"{sizes[0]} and {sizes[1]} bytes for {count} engines")
    values = _of_planes(stored.floats)
    floats = [values[series * count : (series + 1) * count] for series in range(len(ENGINE_FLOATS))]
    states = [bytearray(stored.codes[series * count : (series + 1) * count]) for series in range(len(ENGINE_BYTES))]
    return PoolPart(stored.samples, floats, states, pool, stored.markers, stored.rejections)


def peak_seconds(column: Column, rows: Sequence[int]) -> float:
    """Return the longest queue of these engines, in seconds; 0 without engines."""
    seconds = column.floats[ENGINE_FLOATS.index("seconds")]
    return max((seconds[row] for row in rows if not math.isnan(seconds[row])), default=0.0)


def _planes(values: array[float]) -> bytes:
    """Return the upper bytes of values rounded to 11 significant bits, plane by plane."""
    bits = array("I", values.tobytes())
    # Sign and magnitude are separate, so the carry rounds away from zero; NaN and infinity stay what they are.
    rounded = array("I", [(bit + _ROUND) & _KEPT for bit in bits])
    if sys.byteorder == "big":
        rounded.byteswap()
    data = rounded.tobytes()
    return b"".join(data[byte::4] for byte in _PLANES)


def _of_planes(planes: bytes) -> array[float]:
    """Return the values that the planes encode."""
    count = len(planes) // len(_PLANES)
    data = bytearray(4 * count)
    for number, byte in enumerate(_PLANES):
        data[byte::4] = planes[number * count : (number + 1) * count]
    values = array("f")
    values.frombytes(data)
    if sys.byteorder == "big":
        values.byteswap()
    return values
