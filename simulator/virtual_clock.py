"""Events in virtual time."""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any


class VirtualClock:
    """Runs events in order of time; those of the same time by rank, and then in the order in which they were scheduled.

    Mutable state: `now` (s), the heap of events, and their counter.
    """

    __slots__ = ("_events", "_number", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._number = 0

    @property
    def next_s(self) -> float:
        """The time of the next event; infinite without one."""
        return self._events[0][0] if self._events else math.inf

    def at(self, time_s: float, act: Callable[..., None], *args: object, rank: int = 0) -> None:
        """Call `act` with the arguments at a time; if the time is past, at once."""
        self._number += 1
        # The number keeps ties in order of scheduling; the heap cannot compare functions.
        heappush(self._events, (max(time_s, self.now), rank, self._number, act, args))

    def after(self, delay_s: float, act: Callable[..., None], *args: object) -> None:
        """Call `act` with the arguments `delay_s` from now."""
        self.at(self.now + delay_s, act, *args)

    def run(self, until_s: float) -> None:
        """Run the events up to a time, and set the clock to that time."""
        events = self._events
        while events and events[0][0] <= until_s:
            self.run_next()
        self.now = until_s

    def run_next(self) -> None:
        """Set the clock to the time of the next event, and run it."""
        self.now, _, _, act, args = heappop(self._events)
        act(*args)


class Timer:
    """Calls `act` at one time. Setting another time replaces the first. Mutable: `due_s`, None if it is not set."""

    __slots__ = ("_act", "_clock", "due_s")

    def __init__(self, clock: VirtualClock, act: Callable[[], None]) -> None:
        self._clock, self._act = clock, act
        self.due_s: float | None = None

    def set(self, due_s: float | None) -> None:
        """Call at this time, never if it is infinite; None leaves the timer as it is."""
        if due_s is not None and due_s != self.due_s:
            self.due_s = due_s
            if due_s < math.inf:
                self._clock.at(due_s, self._run, due_s)

    def set_earlier(self, due_s: float) -> None:
        """Call at this time unless the timer is set to an earlier one."""
        if self.due_s is None or due_s < self.due_s:
            self.set(due_s)

    def _run(self, due_s: float) -> None:
        # Earlier settings are outdated.
        if due_s == self.due_s:
            self.due_s = None
            self._act()
