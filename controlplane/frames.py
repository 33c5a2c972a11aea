"""Payloads one after the other in a file, each found whole or not at all.

    frame = MARK, length of the payload, CRC-32 of the payload (big-endian, 4 bytes each), payload

A frame that was cut off, as by kill -9 or a full disk, ends the readable part of its file; nothing is ever
written behind it, because each writer begins a file of its own.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from struct import Struct
from typing import BinaryIO

MAX_FRAME_BYTES = 8 << 20

_FRAME = Struct(">4sII")
_MARK = b"SYfr"


class BadFrameError(ValueError):
    """There is no whole frame here; the message says what is wrong."""


def framed(payload: bytes) -> bytes:
    """Return the frame of a payload."""
    return _FRAME.pack(_MARK, len(payload), zlib.crc32(payload)) + payload


def next_frame(file: BinaryIO) -> bytes:
    """Return the payload of the frame that begins where the file stands; raises BadFrameError."""
    head = file.read(_FRAME.size)
    if len(head) < _FRAME.size:
        raise BadFrameError("the file ends here")
    mark, length, checksum = _FRAME.unpack(head)
    if mark != _MARK or length > MAX_FRAME_BYTES:
        raise BadFrameError("no frame begins here")
    payload = file.read(length)
    if len(payload) < length:
        raise BadFrameError("the frame was cut off")
    if zlib.crc32(payload) != checksum:
        raise BadFrameError("the frame's checksum is wrong")
    return payload


def payloads(file: BinaryIO) -> Iterator[bytes]:
    """Yield the payload of each whole frame from where the file stands, and stop silently where it was cut off."""
    while True:
        try:
            payload = next_frame(file)
        except BadFrameError:
            return
        yield payload
