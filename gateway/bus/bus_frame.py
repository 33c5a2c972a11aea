"""Envelope of one value on the bus: its publisher, its number, and its version.

A frame is the ASCII line `version:origin:seq:seal` followed by the value's bytes. `origin` names one bus object in one
process, `seq` numbers that object's frames, and versions order the values of one topic. The seal is a keyed hash over
everything except the version, which the server assigns. A writer without the fleet secret can withhold or repeat
values, but cannot create any.

While the secret is rotated, a frame has one seal per secret of its sender, separated by commas. One of them is enough
to read it.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from hmac import compare_digest

import msgspec

from kvstore.keys.keyring import Keyring

_HEAD = re.compile(rb"([0-9]{1,16}):([0-9a-f]{16}):([0-9]{1,18}):([0-9a-f]{32}(?:,[0-9a-f]{32})?)")
_MAX_HEAD_BYTES = 128
_SEAL_BYTES = 16


class UnreadableFrameError(ValueError):
    """The bytes were not published by a Headway bus."""


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One published value."""

    version: int
    origin: str
    seq: int
    value: bytes
    sealed_by_used: bool = True
    """Whether a seal uses this process's current secret. Without one, the frame is unreadable after a rotation."""


class FrameSeal:
    """Writes and reads frames that share a fleet secret, kind and topic."""

    __slots__ = ("_keys",)

    def __init__(self, keyring: Keyring) -> None:
        self._keys = keyring.keys("bus messages")

    def tail(self, kind: str, topic: str, frame: Frame) -> bytes:
        """Return the frame without its version, which the server prepends."""
        origin = frame.origin.encode()
        seals = b",".join(_seal(key, kind, topic, origin, frame.seq, frame.value) for key in self._keys.every)
        return b":%s:%d:%s\n%s" % (origin, frame.seq, seals, frame.value)

    def read(self, kind: str, topic: str, data: bytes) -> Frame:
        """Read one frame; raise UnreadableFrameError unless it was published on this topic with our secret."""
        end = data.find(b"\n", 0, _MAX_HEAD_BYTES)
        head = _HEAD.fullmatch(data, 0, max(end, 0))
        if head is None:
            raise UnreadableFrameError("a bus message does not begin with version, origin, number and seal")
        value, seq = data[end + 1 :], int(head[3])
        seals, used = head[4].split(b","), self._keys.used
        if compare_digest(seals[0], _seal(used, kind, topic, head[2], seq, value)):
            return Frame(int(head[1]), head[2].decode(), seq, value)

        def holds(key: bytes) -> bool:
            made = _seal(key, kind, topic, head[2], seq, value)
            return any(compare_digest(seal, made) for seal in seals)

        key = self._keys.matching(holds, topic)
        if key is None:
            raise UnreadableFrameError("a bus message is not sealed with this fleet's secret")
        return Frame(int(head[1]), head[2].decode(), seq, value, key is used)


def _seal(key: bytes, kind: str, topic: str, origin: bytes, seq: int, value: bytes) -> bytes:
    # Its length goes into the seal, too, so that topic and value cannot be divided in another way.
    named = topic.encode(errors="replace")
    sealed = blake2b(
        b"%s:%s:%d:%d:%s" % (kind.encode(), origin, seq, len(named), named), key=key, digest_size=_SEAL_BYTES
    )
    sealed.update(value)
    return sealed.hexdigest().encode()
