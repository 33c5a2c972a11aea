"""The form of a segment file: a head, then frames (controlplane.frames) of some decisions each, compressed.

segment = HEAD frame*
payload = zlib of the msgpack of a list of StoredDecisions
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from controlplane.frames import BadFrameError, framed, next_frame
from gateway.contracts.stored_decision import StoredDecision

HEAD = b"SYDEC01\n"
MAX_PLAIN_BYTES = 64 << 20
_LEVEL = 3

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[StoredDecision]).decode


def frame_of(decisions: Sequence[StoredDecision]) -> bytes:
    """Return the frame of some decisions."""
    return framed(zlib.compress(_encode(decisions), _LEVEL))


def begin(path: Path) -> int:
    """Create the segment and return its file descriptor, for appending; raises FileExistsError and OSError."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
    try:
        if os.write(handle, HEAD) < len(HEAD):
            raise OSError("the disk took only a part of the head")
    except OSError:
        os.close(handle)
        path.unlink(missing_ok=True)
        raise
    return handle


def read_frame(path: Path, offset: int) -> list[StoredDecision]:
    """Return the decisions of the frame at `offset`; raises BadFrameError, and OSError where the file is gone."""
    with path.open("rb") as file:
        file.seek(offset)
        return _unpacked(next_frame(file))


def frames(path: Path) -> Iterator[tuple[int, list[StoredDecision]]]:
    """Yield offset and decisions of each whole frame, and stop silently where the file was cut off."""
    with path.open("rb") as file:
        if file.read(len(HEAD)) != HEAD:
            return
        while True:
            offset = file.tell()
            try:
                decisions = _unpacked(next_frame(file))
            except BadFrameError:
                return
            yield offset, decisions


def _unpacked(payload: bytes) -> list[StoredDecision]:
    unpacker = zlib.decompressobj()
    try:
        plain = unpacker.decompress(payload, MAX_PLAIN_BYTES)
        if not unpacker.eof:
            raise BadFrameError("the frame is larger than frames are")
        return _decode(plain)
    except (zlib.error, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadFrameError(f"the frame cannot be read: {error}") from error
