"""Envelope of one value on the bus: its publisher, its number, and its version.

A frame is the ASCII line `version:origin:seq:seal` followed by the value's bytes. `origin` names one bus
object in one process, `seq` counts what it published, and versions order the values of one topic. The
seal is a keyed hash over all but the version, which the server gives: who can write to the server but
does not know the fleet secret can hold values back or repeat them, and can make none.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from hmac import compare_digest

import msgspec

_HEAD = re.compile(rb"([0-9]{1,16}):([0-9a-f]{16}):([0-9]{1,18}):([0-9a-f]{32})")
_MAX_HEAD_BYTES = 96
_SEAL_BYTES = 16


class UnreadableFrameError(ValueError):
    """The bytes were not published by a bus of this program."""


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One published value."""

    version: int
    origin: str
    seq: int
    value: bytes


class FrameSeal:
    """Writes and reads frames of one installation: of the same fleet secret, kind and topic."""

    __slots__ = ("_key",)

    def __init__(self, fleet_secret: bytes) -> None:
        self._key = blake2b(fleet_secret, person=b"bus frame seal").digest()

    def tail(self, kind: str, topic: str, frame: Frame) -> bytes:
        """Return what follows the version on the wire; the server writes the version before it."""
        origin = frame.origin.encode()
        seal = self._seal(kind, topic, origin, frame.seq, frame.value)
        return b":%s:%d:%s\n%s" % (origin, frame.seq, seal, frame.value)

    def read(self, kind: str, topic: str, data: bytes) -> Frame:
        """Read one frame; raises UnreadableFrameError where nobody with our secret published it here."""
        end = data.find(b"\n", 0, _MAX_HEAD_BYTES)
        head = _HEAD.fullmatch(data, 0, max(end, 0))
        if head is None:
            raise UnreadableFrameError("a bus message does not begin with version, origin, number and seal")
        value, seq = data[end + 1 :], int(head[3])
        if not compare_digest(head[4], self._seal(kind, topic, head[2], seq, value)):
            raise UnreadableFrameError("a bus message is not sealed with this fleet's secret")
        return Frame(int(head[1]), head[2].decode(), seq, value)

    def _seal(self, kind: str, topic: str, origin: bytes, seq: int, value: bytes) -> bytes:
        named = topic.encode(errors="replace")
        sealed = blake2b(
            b"%s:%s:%d:%d:%s" % (kind.encode(), origin, seq, len(named), named), key=self._key, digest_size=_SEAL_BYTES
        )
        sealed.update(value)
        return sealed.hexdigest().encode()
