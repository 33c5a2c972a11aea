"""Limits how long work for another gateway can continue without a message from it.

A request is forwarded under a lease that both ends know. Each heartbeat carries a timestamp of the responder's clock.
The next heartbeat request, and each forwarded request, return the newest timestamp. The serving gateway ends the work
SILENCE_S after the last timestamp that was returned to it. The first contact takes the request back LEASE_MARGIN_S
later, counted from its receipt of that timestamp, which is after its creation. By then the work has ended, whichever
direction of the connection is broken, and no clocks are compared.

A stalled process cannot end work in time. Therefore work that was queued before a stall checks the lease again when it
gets an engine, and a timestamp that arrives after the lease has expired renews it only for later work.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

LEASE_MARGIN_S = 0.5
"""Seconds that the first contact waits beyond SILENCE_S."""


class WorkLease:
    """A lease for work. Times are monotonic seconds.

    Mutable: the time of the last message, how often the lease had expired before a message arrived, and the limits of
    the work that ends without one.
    """

    def __init__(self, lasts_s: float) -> None:
        self._lasts_s = lasts_s
        self.renewed_s = float("-inf")
        self.lapses = 0
        self._limits: set[asyncio.Timeout] = set()

    def __len__(self) -> int:
        return len(self._limits)

    def renew(self, said_s: float, now: float) -> None:
        """Renew by a message sent at `said_s`. An older message changes nothing, and overdue work still ends."""
        if self.is_over(now):
            # Before the new time, after which nothing would show that the work is overdue.
            self.end_overdue(now)
            self.lapses += 1
        self.renewed_s = max(self.renewed_s, said_s)

    def is_over(self, now: float) -> bool:
        """Return whether the lease has expired, so that work must have ended."""
        return now - self.renewed_s > self._lasts_s

    def held(self, clock: Callable[[], float]) -> HeldLease:
        """Return a check whether the lease has held continuously since this call."""
        return HeldLease(self, clock)

    @asynccontextmanager
    async def work(self) -> AsyncIterator[None]:
        """Raise TimeoutError in the block once the lease has expired and `end_overdue` was called."""
        # No time of its own: only `end_overdue` ends it.
        async with asyncio.timeout(None) as limit:
            self._limits.add(limit)
            try:
                yield
            finally:
                self._limits.discard(limit)

    def end_overdue(self, now: float) -> None:
        """End the work if the lease has expired."""
        if self.is_over(now):
            for limit in self._limits:
                # reschedule() raises RuntimeError for an expired one.
                if not limit.expired():
                    limit.reschedule(asyncio.get_running_loop().time())


class HeldLease:
    """The lease of one forwarded request, which begins only while the lease has held since its arrival."""

    def __init__(self, lease: WorkLease, clock: Callable[[], float]) -> None:
        self._lease, self._clock, self._lapses = lease, clock, lease.lapses

    def holds(self) -> bool:
        """Return whether the request can still begin."""
        return self._lapses == self._lease.lapses and not self._lease.is_over(self._clock())
