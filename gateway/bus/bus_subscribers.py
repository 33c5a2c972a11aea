"""Subscribers of each topic, and delivery to them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

logger = logging.getLogger(__name__)

Callback = Callable[[str, bytes], object]


class Subscribers:
    """Callbacks by topic or prefix. Thread-safe: callbacks run outside the lock and can subscribe.

    Mutable, under `_lock`: the copy-on-write table `_callbacks`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._callbacks: dict[str, tuple[Callback, ...]] = {}

    def add(self, pattern: str, callback: Callback) -> Callable[[], None]:
        """Subscribe `callback` to `pattern`; return the function that unsubscribes."""
        with self._lock:
            self._callbacks[pattern] = (*self._callbacks.get(pattern, ()), callback)

        def unsubscribe() -> None:
            self._remove(pattern, callback)

        return unsubscribe

    def deliver(self, topic: str, value: bytes) -> int:
        """Call every subscriber of `topic`; return their number. A failing subscriber does not affect the others."""
        with self._lock:
            callbacks = [callback for name in patterns_of(topic) for callback in self._callbacks.get(name, ())]
        for callback in callbacks:
            call(callback, topic, value)
        return len(callbacks)

    def _remove(self, pattern: str, callback: Callback) -> None:
        with self._lock:
            left = list(self._callbacks.get(pattern, ()))
            if callback in left:
                left.remove(callback)
            if left:
                self._callbacks[pattern] = tuple(left)
            else:
                self._callbacks.pop(pattern, None)


def covers(pattern: str, topic: str) -> bool:
    """Return whether `pattern`, a topic or a prefix ending in "/", covers `topic`."""
    return topic == pattern or (pattern.endswith("/") and topic.startswith(pattern))


def patterns_of(topic: str) -> list[str]:
    """Return the topic and each of its prefixes that end in a slash."""
    prefixes = [topic[: end + 1] for end, character in enumerate(topic) if character == "/"]
    return [topic, *(prefix for prefix in prefixes if prefix != topic)]


def call(callback: Callback, topic: str, value: bytes) -> None:
    """Call one subscriber and log its exceptions."""
    try:
        callback(topic, value)
    except Exception:
        # The edge between publishers and subscribers: one broken reader must not stop the rest.
        logger.exception("a subscriber of %s failed; the others continue", topic)
