"""The form of a segment file: a head, then frames of some decisions each, compressed and checked.

    segment = HEAD frame*
    frame   = MARK, length of the payload, CRC-32 of the payload (big-endian, 4 bytes each), payload
    payload = zlib of the msgpack of a list of StoredDecisions

A frame that was cut off, as by kill -9 or a full disk, ends the readable part of its file; nothing is ever
written behind it, because each writer begins a file of its own.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from gateway.stored_decision import StoredDecision

HEAD = b"SYDEC01\n"
_FRAME = struct.Struct(">4sII")
_MARK = b"SYfr"
MAX_FRAME_BYTES = 8 << 20
MAX_PLAIN_BYTES = 64 << 20
_LEVEL = 3

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[StoredDecision]).decode


class BadFrameError(ValueError):
    """There is no whole frame here; the message says what is wrong."""


def frame_of(decisions: Sequence[StoredDecision]) -> bytes:
    """Return the frame of some decisions."""
    payload = zlib.compress(_encode(decisions), _LEVEL)
    return _FRAME.pack(_MARK, len(payload), zlib.crc32(payload)) + payload


def begin(path: Path) -> int:
    """Create the segment and return its file descriptor, for appending; raises FileExistsError and OSError."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
    os.write(handle, HEAD)
    return handle


def read_frame(path: Path, offset: int) -> list[StoredDecision]:
    """Return the decisions of the frame at `offset`; raises BadFrameError, and OSError where the file is gone."""
    with path.open("rb") as file:
        file.seek(offset)
        return _next_frame(file)


def frames(path: Path) -> Iterator[tuple[int, list[StoredDecision]]]:
    """Yield offset and decisions of each whole frame, and stop silently where the file was cut off."""
    with path.open("rb") as file:
        if file.read(len(HEAD)) != HEAD:
            return
        while True:
            offset = file.tell()
            try:
                decisions = _next_frame(file)
            except BadFrameError:
                return
            yield offset, decisions


def _next_frame(file: BinaryIO) -> list[StoredDecision]:
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
    return _unpacked(payload)


def _unpacked(payload: bytes) -> list[StoredDecision]:
    unpacker = zlib.decompressobj()
    try:
        plain = unpacker.decompress(payload, MAX_PLAIN_BYTES)
        if not unpacker.eof:
            raise BadFrameError("the frame is larger than frames are")
        return _decode(plain)
    except (zlib.error, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadFrameError(f"the frame cannot be read: {error}") from error
