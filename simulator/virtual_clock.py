"""Events in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any


class VirtualClock:
    """Runs events in order of time; events of the same time run in the order in which they were scheduled.

    Mutable state: `now` (s), the heap of events, and their counter.
    """

    __slots__ = ("_events", "_number", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._number = 0

    def at(self, time_s: float, act: Callable[..., None], *args: object) -> None:
        """Call `act` with the arguments at a time; if the time is past, at once."""
        self._number += 1
        # The number keeps ties in order of scheduling; the heap cannot compare functions.
        heappush(self._events, (max(time_s, self.now), self._number, act, args))

    def after(self, delay_s: float, act: Callable[..., None], *args: object) -> None:
        """Call `act` with the arguments `delay_s` from now."""
        self.at(self.now + delay_s, act, *args)

    def run(self, until_s: float) -> None:
        """Run the events up to a time, and set the clock to that time."""
        events = self._events
        while events and events[0][0] <= until_s:
            self.now, _, act, args = heappop(events)
            act(*args)
        self.now = until_s
