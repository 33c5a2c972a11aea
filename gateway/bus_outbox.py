"""What waits to be sent to the server of a shared bus: bounded, so that a dead server costs no memory and no wait."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from gateway.bus_frame import Frame


class Outgoing(msgspec.Struct, frozen=True, gc=False):
    """One value on its way: of a last-value topic, or an entry of a stream."""

    topic: str
    frame: Frame
    is_entry: bool


class Outbox:
    """Of a last-value topic only the newest value waits; of streams the newest entries. Thread-safe.

    Mutable state, under `_lock`: `_values`, `_entries` and their bytes. `dropped` counts what found no place.
    """

    def __init__(self, max_topics: int, max_entries: int, max_bytes: int, wake: Callable[[], None]) -> None:
        self.dropped = 0
        self._max_topics = max_topics
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._wake = wake
        self._lock = threading.Lock()
        self._values: dict[str, Outgoing] = {}
        self._entries: deque[Outgoing] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._values) + len(self._entries)

    def put(self, item: Outgoing) -> None:
        """Let an item wait and return at once; the oldest entries make room, a topic too many is dropped."""
        with self._lock:
            if item.is_entry:
                self._entries.append(item)
                self._bytes += len(item.frame.value)
            else:
                self._put_value(item)
            self._make_room()
        self._wake()

    def take(self, most: int) -> list[Outgoing]:
        """Return the oldest items, values before entries, and let them no longer wait."""
        with self._lock:
            topics = list(self._values)[:most]
            taken = [self._values.pop(topic) for topic in topics]
            taken += [self._entries.popleft() for _ in range(min(most - len(taken), len(self._entries)))]
            self._bytes -= sum(len(item.frame.value) for item in taken)
            return taken

    def put_back(self, items: Sequence[Outgoing]) -> None:
        """Let items wait again that could not be sent; a newer value of the same topic stays the one."""
        with self._lock:
            for item in reversed(items):
                if item.is_entry:
                    self._entries.appendleft(item)
                elif item.topic not in self._values:
                    self._values[item.topic] = item
                else:
                    continue
                self._bytes += len(item.frame.value)
            self._make_room()

    def waits(self, topic: str) -> bool:
        """Return whether a value of this topic waits."""
        with self._lock:
            return topic in self._values

    def _put_value(self, item: Outgoing) -> None:
        before = self._values.pop(item.topic, None)
        if before is not None:
            self._bytes -= len(before.frame.value)
        elif len(self._values) >= self._max_topics:
            self.dropped += 1
            return
        self._values[item.topic] = item
        self._bytes += len(item.frame.value)

    def _make_room(self) -> None:
        while self._entries and (len(self._entries) > self._max_entries or self._bytes > self._max_bytes):
            self._bytes -= len(self._entries.popleft().frame.value)
            self.dropped += 1
        while self._values and self._bytes > self._max_bytes:
            oldest = next(iter(self._values))
            self._bytes -= len(self._values.pop(oldest).frame.value)
            self.dropped += 1
