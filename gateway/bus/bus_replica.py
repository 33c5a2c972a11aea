"""One process's copy of a shared bus: the newest version of each topic, and the position in each stream."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable

from gateway.bus.bus_frame import Frame
from gateway.bus.bus_subscribers import covers

# Each start of a process brings a new origin.
_MAX_ORIGINS = 4096


class BusReplica:
    """A last-writer-wins register per topic. Thread-safe.

    Versions are microseconds since the epoch, raised above all known versions, so that they keep increasing when a
    clock jumps back or the server loses its data. Mutable, under `_lock`: the registers, our newest number per topic,
    and the last number received per topic and origin.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.origin = secrets.token_hex(8)
        self._clock = clock
        self._lock = threading.Lock()
        self._newest = 0
        self._seq = 0
        self._held: dict[str, Frame] = {}
        self._own: dict[str, int] = {}
        self._received: OrderedDict[tuple[str, str], int] = OrderedDict()

    def publish(self, topic: str, value: bytes) -> Frame:
        """Store `value` as the topic's value here, with our own version until the server assigns one."""
        with self._lock:
            frame = self._next_frame(value)
            self._held[topic] = frame
            self._own[topic] = frame.seq
            return frame

    def append(self, value: bytes) -> Frame:
        """Return the frame of a stream entry without storing it."""
        with self._lock:
            return self._next_frame(value)

    def receive(self, topic: str, frame: Frame) -> bool:
        """Apply a frame from the server. Return True if it is newer than the known one, so that subscribers must
        receive it.
        """
        with self._lock:
            self._newest = max(self._newest, frame.version)
            if frame.origin == self.origin:
                # Our own frames come back; `settle` has the server's version of them.
                return False
            held = self._held.get(topic)
            if held is not None and frame.version <= held.version:
                return False
            if frame.seq < self._received.get((topic, frame.origin), 0):
                # An old value of its publisher under a new version: no bus sends that.
                return False
            self._note(topic, frame)
            self._held[topic] = frame
            return True

    def settle(self, topic: str, sent: Frame, version: int) -> bool:
        """Record the version assigned by the server. Return True if another value arrived in between, so that
        subscribers must receive ours again.
        """
        with self._lock:
            self._newest = max(self._newest, version)
            if self._own.get(topic) != sent.seq:
                return False
            held = self._held[topic]
            if held.origin == self.origin:
                self._held[topic] = Frame(version, sent.origin, sent.seq, sent.value)
                return False
            if version <= held.version:
                return False
            self._held[topic] = Frame(version, sent.origin, sent.seq, sent.value)
            return True

    def is_new_entry(self, topic: str, frame: Frame) -> bool:
        """Return whether this stream entry is new, regardless of its delivery path."""
        if frame.origin == self.origin:
            return False
        with self._lock:
            if frame.seq <= self._received.get((topic, frame.origin), 0):
                return False
            self._note(topic, frame)
            return True

    def value(self, topic: str) -> bytes | None:
        """Return the newest known value."""
        with self._lock:
            held = self._held.get(topic)
            return held.value if held is not None else None

    def frame(self, topic: str) -> Frame | None:
        """Return the frame of the newest known value."""
        with self._lock:
            return self._held.get(topic)

    def known(self, pattern: str) -> list[tuple[str, bytes]]:
        """Return (topic, value) of all topics that `pattern` covers."""
        with self._lock:
            return [(topic, frame.value) for topic, frame in self._held.items() if covers(pattern, topic)]

    def versions(self) -> dict[str, int]:
        """Return the known version of every topic."""
        with self._lock:
            return {topic: frame.version for topic, frame in self._held.items()}

    def _note(self, topic: str, frame: Frame) -> None:
        """Record the last number received from this publisher on the topic."""
        name = (topic, frame.origin)
        self._received[name] = frame.seq
        self._received.move_to_end(name)
        if len(self._received) > _MAX_ORIGINS:
            self._received.popitem(last=False)

    def _next_frame(self, value: bytes) -> Frame:
        self._newest = max(self._newest + 1, int(self._clock() * 1e6))
        self._seq += 1
        return Frame(self._newest, self.origin, self._seq, value)
