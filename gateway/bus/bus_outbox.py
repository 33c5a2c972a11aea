"""Bounded queue of items for the shared bus's server. A dead server costs neither memory nor waiting time."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any

import msgspec

from gateway.bus.bus import BusAwayError
from gateway.bus.bus_frame import Frame


class Outgoing(msgspec.Struct, frozen=True, gc=False):
    """One queued value of a last-value topic, or one stream entry."""

    topic: str
    frame: Frame
    is_entry: bool


class BusQuestion(msgspec.Struct, frozen=True, gc=False):
    """A server command that is sent once. `answered` receives its answer, or BusAwayError."""

    command: tuple[Any, ...]
    answered: Future[Any]

    def answer(self, answer: Any) -> None:
        """Set the server's answer, unless the requester has left."""
        with suppress(InvalidStateError):
            self.answered.set_result(answer)

    def fail(self) -> None:
        """Fail the command because no answer arrived."""
        with suppress(InvalidStateError):
            self.answered.set_exception(BusAwayError("the bus has lost its server"))


class Outbox:
    """Holds the newest value of each last-value topic and the newest stream entries. Thread-safe.

    Mutable, under `_lock`: `_values`, `_entries` and their bytes, `_questions`. `dropped` counts values and entries
    that did not fit.
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
        self._questions: deque[BusQuestion] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._values) + len(self._entries) + len(self._questions)

    def put(self, item: Outgoing) -> None:
        """Queue an item without waiting. The oldest entries are dropped to make room, as is a topic over the limit."""
        with self._lock:
            if item.is_entry:
                self._entries.append(item)
                self._bytes += len(item.frame.value)
            else:
                self._put_value(item)
            self._make_room()
        self._wake()

    def ask(self, question: BusQuestion) -> None:
        """Queue a command without waiting. A command over the limit fails."""
        with self._lock:
            has_room = len(self._questions) < self._max_entries
            if has_room:
                self._questions.append(question)
        if has_room:
            self._wake()
        else:
            question.fail()

    def take_questions(self, most: int) -> list[BusQuestion]:
        """Remove and return the oldest commands."""
        with self._lock:
            return [self._questions.popleft() for _ in range(min(most, len(self._questions)))]

    def take(self, most: int) -> list[Outgoing]:
        """Remove and return the oldest items, values before entries."""
        with self._lock:
            topics = list(self._values)[:most]
            taken = [self._values.pop(topic) for topic in topics]
            taken += [self._entries.popleft() for _ in range(min(most - len(taken), len(self._entries)))]
            self._bytes -= sum(len(item.frame.value) for item in taken)
            return taken

    def put_back(self, items: Sequence[Outgoing]) -> None:
        """Queue unsent items again, unless a newer value of the topic is queued."""
        with self._lock:
            # In reverse, so that the entries keep their order at the front.
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
        """Return whether a value of this topic is queued."""
        with self._lock:
            return topic in self._values

    def _put_value(self, item: Outgoing) -> None:
        # Popped, so that the new value goes to the end: the oldest are taken, or make room, first.
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
