"""How many clients may be connected to this process at once: in all, and from one address."""

from __future__ import annotations

import asyncio
import logging
import resource
from collections import Counter
from weakref import WeakKeyDictionary

from gateway.base.event_log import log_event
from kvstore.transfer.unproven import source_of

MOST = 16_384
MAX_OPEN_FILES = 65_536


class ConnectionLimit:
    """Admits up to `most` connections, half of them at most from one address or, of IPv6, one /64 network.

    Loopback counts only towards the whole: a proxy on this machine brings everybody's connections. Mutable;
    belongs to one event loop's thread.
    """

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self._open: Counter[str] = Counter()
        self._rejects = False

    def enter(self, address: str, connected: int) -> str | None:
        """Return the source to `leave` later; None where it, or `connected` in all, is over the limit."""
        source = source_of(address)
        admitted = connected <= self.most and (not source or self._open[source] < self.most // 2)
        if admitted:
            self._open[source] += 1
        elif not self._rejects:
            log_event("connections_refused", level=logging.WARNING, connected=connected, address=source)
        self._rejects = not admitted
        return source if admitted else None

    def leave(self, source: str) -> None:
        """Note the end of a connection from there."""
        self._open[source] -= 1
        if not self._open[source]:
            del self._open[source]


def limit_of(loop: asyncio.AbstractEventLoop) -> ConnectionLimit:
    """Return the limit that all connections of this loop share."""
    limit = _limits.get(loop)
    if limit is None:
        # A quarter of the files is left for engines, databases and segments.
        most = min(MOST, resource.getrlimit(resource.RLIMIT_NOFILE)[0] * 3 // 4)
        limit = _limits[loop] = ConnectionLimit(most)
    return limit


def allow_open_files() -> None:
    """Let this process open as many files as it may: the limit that shells set is for programs that use select."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


_limits: WeakKeyDictionary[asyncio.AbstractEventLoop, ConnectionLimit] = WeakKeyDictionary()
