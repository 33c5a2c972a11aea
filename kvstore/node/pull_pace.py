"""Limit the rate of pulls that no request waits for, so that loads of requests keep enough bandwidth."""

from __future__ import annotations

import threading
from collections.abc import Callable


class PullPace:
    """Rate limit for any number of threads.

    Mutable state: `_free_at`, when the pulls so far no longer use up the limit.
    """

    def __init__(
        self, bytes_per_s: float, clock: Callable[[], float], wait: Callable[[float], object] | None = None
    ) -> None:
        """Set the limit, 0 for none. `wait` waits for a number of seconds, or less if the node stops."""
        self._bytes_per_s, self._clock = bytes_per_s, clock
        self._wait = wait or threading.Event().wait
        self._free_at = 0.0
        self._lock = threading.Lock()

    def came(self, size: int) -> None:
        """Wait until `size` more bytes fit into the limit."""
        if self._bytes_per_s <= 0 or size <= 0:
            return
        with self._lock:
            now = self._clock()
            self._free_at = max(now, self._free_at) + size / self._bytes_per_s
            pause_s = self._free_at - now
        # Outside the lock, so that the pulls behind this one can reserve their time.
        self._wait(pause_s)
