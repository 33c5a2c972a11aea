"""How long work for another gateway may go on without a word of it.

A request is forwarded under a lease that both ends know. Each heartbeat carries a stamp of whoever answers, on its own
clock; the question after it, and each forwarded request, brings the newest stamp back. Whoever serves the request ends
it SILENCE_S after the last stamp that came back. Its first contact takes it back LEASE_MARGIN_S later, counted from
when it got that stamp, which was after it was made: by then the work has ended, whichever way of the connection is
broken, and no clocks are compared.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

SILENCE_S = 2.0
"""A gateway whose last heartbeat is older is unavailable, and work for it ends."""
LEASE_MARGIN_S = 0.5
"""What the first contact waits beyond SILENCE_S, for a process that is held up."""


class WorkLease:
    """Times are monotonic seconds. Mutable state: the last word, and the limits of the work that ends without one."""

    def __init__(self, lasts_s: float) -> None:
        self._lasts_s = lasts_s
        self.renewed_s = float("-inf")
        self._limits: set[asyncio.Timeout] = set()

    def __len__(self) -> int:
        return len(self._limits)

    def renew(self, said_s: float) -> None:
        """Take a word that was said then; an older one changes nothing."""
        self.renewed_s = max(self.renewed_s, said_s)

    def is_over(self, now: float) -> bool:
        """Return whether work must have ended."""
        return now - self.renewed_s > self._lasts_s

    @asynccontextmanager
    async def work(self) -> AsyncIterator[None]:
        """Raise TimeoutError in the block once the lease is over and `end_overdue` has been called."""
        async with asyncio.timeout(None) as limit:
            self._limits.add(limit)
            try:
                yield
            finally:
                self._limits.discard(limit)

    def end_overdue(self, now: float) -> None:
        """End the work if the lease is over."""
        if self.is_over(now):
            for limit in self._limits:
                if not limit.expired():
                    limit.reschedule(asyncio.get_running_loop().time())
