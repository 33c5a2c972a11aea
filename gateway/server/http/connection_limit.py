"""Limits the concurrent client connections of this process: in total, and from one address.

If the limit is reached, the longest idle connection is closed to admit another client.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Protocol
from weakref import WeakKeyDictionary

from gateway.base.event_log import log_event
from kvstore.transfer.unproven import source_of

MOST = 16_384
MAX_OPEN_FILES = 65_536


class Idle(Protocol):
    """A connection that can be idle."""

    @property
    def used_s(self) -> float:
        """Return the time of its last use."""

    def close_idle(self) -> None:
        """Close it and leave the limit immediately."""


class ConnectionLimit:
    """Admits up to `most` connections, at most half of them from one address or one IPv6 /64 network.

    Loopback counts only toward the total, because a proxy on this machine relays the connections of all clients.
    Mutable: the counts, and the idle connections in the order in which they became idle; used on one event loop's
    thread.
    """

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self._open: Counter[str] = Counter()
        self._idle: defaultdict[str, dict[Idle, float]] = defaultdict(dict)
        """Source → its idle connections, with `used_s` when each was recorded."""
        self._rejects = False

    def enter(self, address: str, connected: int) -> str | None:
        """Return the source to pass to `leave` later, None if a limit is reached and no connection is idle.

        The limits apply to this source and to `connected`, the total.
        """
        source = source_of(address)
        if source and self._open[source] >= self.most // 2:
            admitted = self._displace((source,))
        else:
            admitted = connected <= self.most or self._displace(tuple(self._idle))
        if admitted:
            self._open[source] += 1
        # Once until another one is admitted: a flood of connections must not flood the log.
        elif not self._rejects:
            log_event("connections_rejected", level=logging.WARNING, connected=connected, address=source)
        self._rejects = not admitted
        return source if admitted else None

    def leave(self, source: str) -> None:
        """Record the end of a connection from this source."""
        self._open[source] -= 1
        if not self._open[source]:
            del self._open[source]

    def idle(self, source: str, connection: Idle) -> None:
        """Record that a connection waits for its next request."""
        self._idle[source][connection] = connection.used_s

    def busy(self, source: str, connection: Idle) -> None:
        """Record that the connection has ended or a request has begun."""
        waiting = self._idle.get(source)
        if waiting is not None and waiting.pop(connection, None) is not None and not waiting:
            del self._idle[source]

    def _displace(self, sources: Sequence[str]) -> bool:
        """Close the longest idle connection of these sources; return False if none is idle."""
        firsts = [(first[0].used_s, source, first[0]) for source in sources if (first := self._first(source))]
        if not firsts:
            return False
        _, source, connection = min(firsts, key=lambda item: item[0])
        self.busy(source, connection)
        connection.close_idle()
        return True

    def _first(self, source: str) -> tuple[Idle] | None:
        """Return the longest idle connection. Connections used on the fast path in the meantime move back."""
        waiting = self._idle.get(source)
        while waiting:
            connection, noted_s = next(iter(waiting.items()))
            if connection.used_s == noted_s:
                return (connection,)
            del waiting[connection]
            waiting[connection] = connection.used_s
        return None


def limit_of(loop: asyncio.AbstractEventLoop) -> ConnectionLimit:
    """Return the limit shared by all connections of this loop."""
    limit = _limits.get(loop)
    if limit is None:
        # A quarter of the files is left for engines, databases and segments.
        most = min(MOST, resource.getrlimit(resource.RLIMIT_NOFILE)[0] * 3 // 4)
        limit = _limits[loop] = ConnectionLimit(most)
    return limit


def allow_open_files() -> None:
    """Raise this process's limit of open files to its maximum. Shells set a lower one for programs with select."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


_limits: WeakKeyDictionary[asyncio.AbstractEventLoop, ConnectionLimit] = WeakKeyDictionary()
