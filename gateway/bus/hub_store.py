"""Data of a local hub: last values, the newest stream entries, and claims.

It implements in Python the scripts of gateway.bus.redis_scripts, under the same names.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence

Message = tuple[bytes, bytes]
"""A channel, and the bytes that its subscribers receive."""

MAX_STREAM_BYTES = 16 << 20
"""Limit of each stream. A process that was disconnected for too long misses older entries."""
MAX_CLAIMS = 10_000


class HubStore:
    """All keys of the hub. Mutable: hashes, sets, streams and claims, used by one thread.

    `clock` returns unix seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._hashes: dict[bytes, dict[bytes, bytes]] = {}
        self._sets: dict[bytes, set[bytes]] = {}
        self._streams: dict[bytes, _Stream] = {}
        self._claims: OrderedDict[bytes, tuple[bytes, float]] = OrderedDict()

    def hash(self, key: bytes) -> dict[bytes, bytes]:
        """Return the fields of a hash, empty if it does not exist."""
        return self._hashes.get(key, {})

    def members(self, key: bytes) -> list[bytes]:
        """Return the members of a set."""
        return list(self._sets.get(key, ()))

    def entries_after(self, key: bytes, after: bytes) -> list[tuple[bytes, bytes]]:
        """Return (id, entry) of the stored entries after this id, oldest first."""
        stream = self._streams.get(key)
        return stream.after(_entry_id(after)) if stream is not None else []

    def time(self) -> tuple[int, int]:
        """Return unix seconds, and the microseconds of that second."""
        micros = int(self._clock() * 1e6)
        return micros // 1_000_000, micros % 1_000_000

    def publish(self, keys: Sequence[bytes], arguments: Sequence[bytes]) -> tuple[bytes, Message | None]:
        """Run PUBLISH: raise the version if needed and store the frame. Return the resulting version."""
        topic, offered, tail, channel, mode, most = arguments
        versions, values = (self._hashes.setdefault(key, {}) for key in keys)
        stored, version = int(versions.get(topic, b"-1")), int(offered)
        if mode == b"reseal":
            if stored == version:
                values[topic] = b"%d%s" % (version, tail)
            return b"%d" % stored, None
        if stored >= version:
            if mode == b"restore":
                return b"%d" % stored, None
            version = stored + 1
        if stored < 0 and len(versions) >= int(most):
            return b"-1", None
        versions[topic] = b"%d" % version
        values[topic] = frame = b"%d%s" % (version, tail)
        return versions[topic], (channel, frame)

    def append(self, keys: Sequence[bytes], arguments: Sequence[bytes]) -> tuple[bytes, Message | None]:
        """Run APPEND: store the entry among the newest. Return its id."""
        topic, frame, channel, most_entries, most_topics = arguments
        topics = self._sets.setdefault(keys[0], set())
        if topic not in topics and len(topics) >= int(most_topics):
            return b"-1", None
        topics.add(topic)
        entry_id = self._streams.setdefault(keys[1], _Stream()).add(int(self._clock() * 1e3), frame, int(most_entries))
        return entry_id, (channel, entry_id + b"\n" + frame)

    def claim(self, key: bytes, holder: bytes, instead_of: bytes, milliseconds: int) -> bytes:
        """Run CLAIM. Over the limit, the oldest claims are dropped."""
        now = self._clock()
        held, until = self._claims.get(key, (b"", 0.0))
        if held and until > now and held != instead_of:
            return held
        self._claims[key] = (holder, now + milliseconds / 1000)
        self._claims.move_to_end(key)
        if len(self._claims) > MAX_CLAIMS:
            self._claims.popitem(last=False)
        return holder


class _Stream:
    """The newest entries of one stream, in the order of their ids."""

    def __init__(self) -> None:
        self._entries: deque[tuple[tuple[int, int], bytes]] = deque()
        self._bytes = 0
        self._last = (0, 0)

    def add(self, now_ms: int, frame: bytes, most: int) -> bytes:
        """Store the entry; return its id, which exceeds all earlier ids even if the clock jumps back."""
        self._last = (now_ms, 0) if now_ms > self._last[0] else (self._last[0], self._last[1] + 1)
        self._entries.append((self._last, frame))
        self._bytes += len(frame)
        while len(self._entries) > most or (self._bytes > MAX_STREAM_BYTES and len(self._entries) > 1):
            self._bytes -= len(self._entries.popleft()[1])
        return b"%d-%d" % self._last

    def after(self, entry_id: tuple[int, int]) -> list[tuple[bytes, bytes]]:
        """Return the entries with higher ids."""
        return [(b"%d-%d" % key, frame) for key, frame in self._entries if key > entry_id]


def _entry_id(text: bytes) -> tuple[int, int]:
    milliseconds, _, number = text.partition(b"-")
    return int(milliseconds), int(number or b"0")
