"""Order of transfers on a link: waiting requests first, then prefetches, advisories, and replications.

`TransferQueue` decides; `FlowControl` lets threads wait for it. A transfer is admitted while fewer than `window_bytes`
are in progress and no more urgent one waits. Batches are sent in pieces, so an urgent transfer waits for at most one
piece.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum


class FlowPriority(IntEnum):
    """Purpose of a transfer, most urgent first."""

    REQUEST = 0
    PREFETCH = 1
    ADVISORY = 2
    REPLICATION = 3


class TransferQueue:
    """Waiting transfers.

    Mutable state: `_waiting` (heap of priority, number, size) and `under_way` (bytes in progress).
    """

    def __init__(self, window_bytes: int) -> None:
        self.window_bytes = window_bytes
        self.under_way = 0
        self._waiting: list[tuple[int, int, int]] = []
        self._number = 0

    def join(self, priority: int, size: int) -> int:
        """Queue a transfer and return its number."""
        self._number += 1
        # By number among equals: first come, first served.
        heapq.heappush(self._waiting, (priority, self._number, size))
        return self._number

    def admit(self, number: int) -> bool:
        """Admit this transfer if it is first and fits. A single transfer can exceed the window."""
        _, first, size = self._waiting[0]
        # One transfer alone may exceed the window, or it would never run.
        if first != number or (self.under_way and self.under_way + size > self.window_bytes):
            return False
        heapq.heappop(self._waiting)
        self.under_way += size
        return True

    def leave(self, number: int) -> None:
        """Remove a waiting transfer."""
        self._waiting = [item for item in self._waiting if item[1] != number]
        heapq.heapify(self._waiting)

    def end(self, size: int) -> None:
        """End an admitted transfer."""
        self.under_way -= size


class FlowControl:
    """A transfer queue for threads."""

    def __init__(self, window_bytes: int) -> None:
        self._queue = TransferQueue(window_bytes)
        self._turn = threading.Condition()

    @contextmanager
    def moving(self, priority: int, size: int, timeout_s: float) -> Iterator[None]:
        """Wait until the transfer is admitted, and end it with the context. Raises TimeoutError."""
        with self._turn:
            number = self._queue.join(priority, size)
            if not self._turn.wait_for(lambda: self._queue.admit(number), timeout_s):
                self._queue.leave(number)
                self._turn.notify_all()
                raise TimeoutError(f"no turn for {size} bytes within {timeout_s} s")
            # Another transfer behind this one may have its turn already.
            self._turn.notify_all()
        try:
            yield
        finally:
            with self._turn:
                self._queue.end(size)
                self._turn.notify_all()
