"""Collects the newest word about each of many things, as a topic of the bus brings it, until a job stores it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Generic, TypeVar

from gateway.bus.bus import Bus
from gateway.contracts.wire import UnreadableMessageError

logger = logging.getLogger(__name__)

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


def _newer(_old: Value, new: Value) -> Value:
    return new


class NewestIntake(Generic[Key, Value]):
    """Hears messages in the publisher's thread. Mutable state, under `_lock`: the values that are not settled yet."""

    def __init__(
        self,
        bus: Bus,
        topic: str,
        read: Callable[[bytes], Mapping[Key, Value]],
        at_most: int,
        *,
        newer: Callable[[Value, Value], Value] = _newer,
    ) -> None:
        """`read` raises UnreadableMessageError; `newer` chooses between the value that is kept and a new one."""
        self._read = read
        self._at_most = at_most
        self._newer = newer
        self._lock = threading.Lock()
        self._newest: dict[Key, Value] = {}
        self.stop = bus.subscribe(topic, self._hear)
        """Call it to hear no more."""

    def settle(self, write: Callable[[dict[Key, Value]], tuple[Collection[Key], int]]) -> int:
        """Have `write` store what has come; it returns what is settled, and how many were written, which is returned.

        What is not settled, or has come anew meanwhile, is kept; all of it where `write` raises.
        """
        with self._lock:
            newest = dict(self._newest)
        settled, written = write(newest)
        with self._lock:
            for key in settled:
                if self._newest.get(key) == newest[key]:
                    del self._newest[key]
        return written

    def _hear(self, topic: str, message: bytes) -> None:
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
