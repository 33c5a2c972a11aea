"""How one value travels between the processes of a bus: who published it, as which of his, and in which version.

A frame is the ASCII line `version:origin:seq` followed by the value's bytes. `origin` names one bus
object in one process, `seq` counts what it published, and versions order the values of one topic.
"""

from __future__ import annotations

import re

import msgspec

_HEAD = re.compile(rb"([0-9]{1,16}):([0-9a-f]{16}):([0-9]{1,18})")
_MAX_HEAD_BYTES = 64


class UnreadableFrameError(ValueError):
    """The bytes were not published by a bus of this program."""


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One published value."""

    version: int
    origin: str
    seq: int
    value: bytes


def tail(frame: Frame) -> bytes:
    """Return what follows the version on the wire; the server writes the version before it."""
    return b":%s:%d\n%s" % (frame.origin.encode(), frame.seq, frame.value)


def read_frame(data: bytes) -> Frame:
    """Read one frame; raises UnreadableFrameError."""
    end = data.find(b"\n", 0, _MAX_HEAD_BYTES)
    head = _HEAD.fullmatch(data, 0, max(end, 0))
    if head is None:
        raise UnreadableFrameError("a bus message does not begin with version, origin and number")
    return Frame(int(head[1]), head[2].decode(), int(head[3]), data[end + 1 :])
