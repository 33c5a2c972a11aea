"""How the parts of Switchyard tell each other things: last-value topics and stream topics.

Redis takes the place of InProcessBus when the program is grown to several processes; both keep the
same promises, and values are bytes so that nothing depends on sharing memory.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol

logger = logging.getLogger(__name__)

Callback = Callable[[str, bytes], None]


class Bus(Protocol):
    """Thread-safe publish and subscribe. Callbacks run in the publisher's thread and must return quickly.

    Two publishers that race on one topic may be heard in either order, so values carry a version or
    a time of their own.
    """

    def publish(self, topic: str, value: bytes) -> None:
        """Make `value` the last value of `topic` and tell its subscribers."""

    def latest(self, topic: str) -> bytes | None:
        """Return the last value of `topic`; None where nothing was published."""

    def append(self, topic: str, value: bytes) -> None:
        """Tell the subscribers of `topic`; nothing is kept."""

    def subscribe(self, topic: str, callback: Callback) -> Callable[[], None]:
        """Hear `topic`, or all topics below a prefix ending in "/"; returns the call that ends it.

        Last values that exist are delivered before this returns.
        """


class InProcessBus:
    """The bus of a single process.

    Mutable state, under `_lock`: `_latest` and the copy-on-write table `_subscribers`. Callbacks
    run outside the lock, so that one may publish or subscribe in its turn.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._latest: dict[str, bytes] = {}
        self._subscribers: dict[str, tuple[Callback, ...]] = {}

    def publish(self, topic: str, value: bytes) -> None:
        """Make `value` the last value of `topic` and tell its subscribers."""
        with self._lock:
            self._latest[topic] = value
        self._deliver(topic, value)

    def latest(self, topic: str) -> bytes | None:
        """Return the last value of `topic`; None where nothing was published."""
        with self._lock:
            return self._latest.get(topic)

    def append(self, topic: str, value: bytes) -> None:
        """Tell the subscribers of `topic`; nothing is kept."""
        self._deliver(topic, value)

    def subscribe(self, topic: str, callback: Callback) -> Callable[[], None]:
        """Hear `topic`, or all topics below a prefix ending in "/"; returns the call that ends it."""
        with self._lock:
            self._subscribers[topic] = (*self._subscribers.get(topic, ()), callback)
            known = [(name, value) for name, value in self._latest.items() if _covers(topic, name)]
        for name, value in known:
            _call(callback, name, value)

        def unsubscribe() -> None:
            self._remove(topic, callback)

        return unsubscribe

    def _deliver(self, topic: str, value: bytes) -> None:
        with self._lock:
            callbacks = [callback for name in _patterns(topic) for callback in self._subscribers.get(name, ())]
        for callback in callbacks:
            _call(callback, topic, value)

    def _remove(self, topic: str, callback: Callback) -> None:
        with self._lock:
            left = list(self._subscribers.get(topic, ()))
            if callback in left:
                left.remove(callback)
            if left:
                self._subscribers[topic] = tuple(left)
            else:
                self._subscribers.pop(topic, None)


def _covers(pattern: str, topic: str) -> bool:
    return topic == pattern or (pattern.endswith("/") and topic.startswith(pattern))


def _patterns(topic: str) -> list[str]:
    """Return the topic and each prefix of it that ends in a slash."""
    prefixes = [topic[: end + 1] for end, character in enumerate(topic) if character == "/"]
    return [topic, *(prefix for prefix in prefixes if prefix != topic)]


def _call(callback: Callback, topic: str, value: bytes) -> None:
    try:
        callback(topic, value)
    except Exception:
        logger.exception("a subscriber of %s failed; the others go on", topic)
