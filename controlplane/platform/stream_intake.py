"""Collects entries of a bus stream until a job stores them."""

from __future__ import annotations

import threading
import time
from collections import deque

from gateway.bus.bus import Bus

MAX_WAITING_BYTES = 64 << 20
"""Encoded batches that wait at most; beyond it the oldest are dropped and counted."""
KEPT_S = 60.0
"""A process that does not store itself keeps what it heard this long, in case the one that does is gone."""


class StreamIntake:
    """Hears batches in the publisher's thread. Mutable state, under `_lock`: the batches and the counts."""

    def __init__(self, bus: Bus, topic: str) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[tuple[float, bytes]] = deque()
        self._bytes = 0
        self.dropped = 0
        """Batches that found no room."""
        self._unsubscribe = bus.subscribe(topic, self._hear)

    def stop(self) -> None:
        """Hear no more."""
        self._unsubscribe()

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self, at_most: int = 64) -> list[bytes]:
        """Take out the oldest batches."""
        with self._lock:
            taken = [self._waiting.popleft()[1] for _ in range(min(at_most, len(self._waiting)))]
            self._bytes -= sum(map(len, taken))
        return taken

    def give_back(self, batches: list[bytes]) -> None:
        """Put batches back that could not be stored now."""
        now = time.monotonic()
        with self._lock:
            self._waiting.extendleft((now, value) for value in reversed(batches))
            self._bytes += sum(map(len, batches))
            self._make_room()

    def forget_old(self) -> None:
        """Drop what another process has stored by now."""
        limit = time.monotonic() - KEPT_S
        with self._lock:
            while self._waiting and self._waiting[0][0] < limit:
                self._bytes -= len(self._waiting.popleft()[1])

    def _hear(self, _topic: str, value: bytes) -> None:
        with self._lock:
            self._waiting.append((time.monotonic(), value))
            self._bytes += len(value)
            self._make_room()

    def _make_room(self) -> None:
        while self._bytes > MAX_WAITING_BYTES:
            self._bytes -= len(self._waiting.popleft()[1])
            self.dropped += 1
