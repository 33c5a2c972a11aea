"""Byte strings one after the other in a file, of which each is found whole or not at all.

Length and CRC-32 (little endian, 4 bytes each) stand before each one. What was cut off by kill -9 or a full disk
costs that frame only: nothing is ever written behind it, because each writer begins a file of its own.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from struct import Struct

MAX_FRAME_BYTES = 16 << 20

_HEAD = Struct("<II")


def framed(data: bytes) -> bytes:
    """Return the bytes as a file has them."""
    return _HEAD.pack(len(data), zlib.crc32(data)) + data


def frames(path: Path) -> Iterator[bytes]:
    """Yield what the file holds, and stop silently where it was cut off or is gone."""
    try:
        with path.open("rb") as file:
            while len(head := file.read(_HEAD.size)) == _HEAD.size:
                length, checksum = _HEAD.unpack(head)
                if length > MAX_FRAME_BYTES:
                    return
                data = file.read(length)
                if len(data) < length or zlib.crc32(data) != checksum:
                    return
                yield data
    except FileNotFoundError:
        return
