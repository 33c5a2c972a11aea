"""Collects values from bus topics until a job stores them: all entries of a stream, or the newest value per key."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Generic, TypeVar

from gateway.bus.bus import Bus
from gateway.contracts.wire import UnreadableMessageError

logger = logging.getLogger(__name__)

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

MAX_WAITING_BYTES = 64 << 20
"""Limit of waiting encoded batches. Beyond it, the oldest batches are dropped and counted."""
KEPT_S = 60.0
"""Time for which a process that does not store keeps batches, in case the storing process fails."""


class StreamIntake:
    """Receives batches in the publisher's thread. Mutable state, under `_lock`: the batches and the counts."""

    def __init__(self, bus: Bus, topic: str) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[tuple[float, bytes]] = deque()
        self._bytes = 0
        self.dropped = 0
        """Number of batches dropped because the limit was reached."""
        self._unsubscribe = bus.subscribe(topic, self._receive)

    def stop(self) -> None:
        """Unsubscribe."""
        self._unsubscribe()

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self, at_most: int = 64) -> list[bytes]:
        """Remove and return the oldest batches."""
        with self._lock:
            taken = [self._waiting.popleft()[1] for _ in range(min(at_most, len(self._waiting)))]
            self._bytes -= sum(map(len, taken))
        return taken

    def give_back(self, batches: list[bytes]) -> None:
        """Put back batches that could not be stored."""
        now = time.monotonic()
        with self._lock:
            self._waiting.extendleft((now, value) for value in reversed(batches))
            self._bytes += sum(map(len, batches))
            self._make_room()

    def forget_old(self) -> None:
        """Drop batches older than KEPT_S, which another process has stored by now."""
        limit = time.monotonic() - KEPT_S
        with self._lock:
            while self._waiting and self._waiting[0][0] < limit:
                self._bytes -= len(self._waiting.popleft()[1])

    def _receive(self, _topic: str, value: bytes) -> None:
        with self._lock:
            self._waiting.append((time.monotonic(), value))
            self._bytes += len(value)
            self._make_room()

    def _make_room(self) -> None:
        while self._bytes > MAX_WAITING_BYTES:
            self._bytes -= len(self._waiting.popleft()[1])
            self.dropped += 1


def _newer(_old: Value, new: Value) -> Value:
    return new


class NewestIntake(Generic[Key, Value]):
    """Receives messages in the publisher's thread. Mutable state, under `_lock`: the values that are not settled."""

    def __init__(
        self,
        bus: Bus,
        topic: str,
        read: Callable[[bytes], Mapping[Key, Value]],
        at_most: int,
        *,
        newer: Callable[[Value, Value], Value] = _newer,
    ) -> None:
        """Subscribe to the topic.

        `read` raises UnreadableMessageError. `newer` chooses between the stored value and a new one.
        """
        self._read = read
        self._at_most = at_most
        self._newer = newer
        self._lock = threading.Lock()
        self._newest: dict[Key, Value] = {}
        self.stop = bus.subscribe(topic, self._receive)
        """Call this to unsubscribe."""

    def settle(self, write: Callable[[dict[Key, Value]], tuple[Collection[Key], int]]) -> int:
        """Pass the received values to `write`, which returns the settled keys and the number of writes. Return that
        number.

        Values that are not settled, or were received again meanwhile, are kept. If `write` raises, all values are kept.
        """
        with self._lock:
            newest = dict(self._newest)
        # Outside the lock: the bus's thread must not wait for the database.
        settled, written = write(newest)
        with self._lock:
            for key in settled:
                # A newer value has arrived meanwhile and is kept.
                if self._newest.get(key) == newest[key]:
                    del self._newest[key]
        return written

    def _receive(self, topic: str, message: bytes) -> None:
        try:
            values = self._read(message)
        except UnreadableMessageError as error:
            logger.warning("a message cannot be read", extra={"topic": topic, "reason": str(error)})
            return
        with self._lock:
            for key, value in values.items():
                if key in self._newest:
                    self._newest[key] = self._newer(self._newest[key], value)
                elif len(self._newest) < self._at_most:
                    self._newest[key] = value
