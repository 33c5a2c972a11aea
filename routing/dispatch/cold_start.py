"""Requests of a pool without engines: how long they may wait, and when its first engine is expected."""

from __future__ import annotations

from collections.abc import Callable

from routing.dispatch.request_queue import WaitingRoom
from routing.ledger.fleet_view import NEVER, FleetView
from routing.values.decision import CENTRAL

UNBOUND_WAIT_S = 10.0
"""How long a request waits for any engine to accept work, in a pool that starts none for it."""
RECENT_S = 10.0
"""How long a request that did not wait counts as a reason to start an engine."""
_WEIGHT = 0.3
"""Weight of the latest start in the expected time of a start."""


class ColdStart:
    """The start of a pool's first engine. Times in seconds of the caller's clock.

    Mutable: the expected time of a start, since when requests lack an engine, and when the last one did.
    """

    def __init__(self, view: FleetView, waiting: WaitingRoom) -> None:
        self._view, self._waiting = view, waiting
        self.expected_s: float | None = None
        """Expected time from the first request to the first engine; None: the pool starts none for its requests."""
        self.on_demand: Callable[[float], None] = lambda now: None
        """Called with the time while requests lack an engine that the pool can start for them."""
        self._configured_s: float | None = None
        self._since_s: float | None = None
        self._last_s = -NEVER

    def adopt(self, configured_s: float | None) -> None:
        """Expect starts to take this long until one is measured; None: the pool starts no engine for its requests."""
        if configured_s != self._configured_s:
            self._configured_s = self.expected_s = configured_s

    def limit_s(self, max_wait_s: float) -> float:
        """Return how long a request may wait without any engine, given the limit of any wait."""
        return UNBOUND_WAIT_S if self.expected_s is None else max_wait_s

    def left_s(self, now: float) -> float:
        """Return the seconds until the first engine is expected."""
        if self.expected_s is None:
            return UNBOUND_WAIT_S
        passed_s = 0.0 if self._since_s is None else now - self._since_s
        # A start that is late is expected to stay late for as long again.
        return max(1.0, abs(self.expected_s - passed_s))

    def unserved(self, now: float) -> int:
        """Return the number of requests that lack an engine: those that wait, or one that recently could not."""
        if self._view.roster.accepting:
            return 0
        return len(self._waiting.of(CENTRAL)) or int(now - self._last_s < RECENT_S)

    def demand(self, now: float) -> None:
        """Record that a request lacks an engine."""
        # Demand long ago, which nothing answered, does not belong to the start that follows.
        if self._since_s is None or (now - self._last_s >= RECENT_S and not self._waiting.has(CENTRAL)):
            self._since_s = now
        self._last_s = now
        if self.expected_s is not None:
            self.on_demand(now)

    def follow(self, now: float) -> None:
        """Renew the demand of waiting requests. If an engine accepts work, its start is measured."""
        if not self._view.roster.accepting:
            if self._waiting.has(CENTRAL):
                self.demand(now)
        elif self._since_s is not None:
            if self.expected_s is not None:
                self.expected_s += _WEIGHT * (now - self._since_s - self.expected_s)
            self._since_s = None
