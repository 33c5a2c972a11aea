"""Select the target that is free first without scanning all targets, which is expensive in large fleets."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from math import inf

SCANNED_TARGETS = 64
"""Up to this many targets, scanning all is cheaper than keeping an order."""


class ReadyOrder:
    """Targets by the time at which they are expected to be ready, ties by target.

    Mutable state: a heap of (time, target). Only entries that agree with `ready_at` count.
    """

    __slots__ = ("_heap", "_ready_at")

    def __init__(self, ready_at: Sequence[float]) -> None:
        self._ready_at = ready_at
        self._heap: list[tuple[float, int]] = []
        self._renew()

    def note(self, target: int, ready_at: float) -> None:
        """Record a target's new time."""
        heappush(self._heap, (ready_at, target))
        # Outdated entries are dropped in bulk, so that the heap stays proportional to the targets.
        if len(self._heap) > 4 * len(self._ready_at):
            self._renew()

    def first(self, among: int) -> int:
        """Return the first ready target of the bitset `among`, -1 if none of them is known."""
        heap, ready_at = self._heap, self._ready_at
        passed: list[tuple[float, int]] = []
        ready = -1
        while heap:
            moment, target = heap[0]
            if ready_at[target] == moment:
                if among >> target & 1:
                    ready = target
                    break
                passed.append(heap[0])
            heappop(heap)
        # They are current, and another set of targets may include them.
        for entry in passed:
            heappush(heap, entry)
        return ready

    def check(self) -> None:
        """Raise AssertionError unless every target with a finite time has an entry."""
        listed = set(self._heap)
        for target, moment in enumerate(self._ready_at):
            if moment != inf and (moment, target) not in listed:
                raise AssertionError(f"target {target} is never the first")
        if len(self._heap) > max(4 * len(self._ready_at), 1):
            raise AssertionError("entries of other moments pile up")

    def _renew(self) -> None:
        self._heap = [(moment, target) for target, moment in enumerate(self._ready_at) if moment != inf]
        heapify(self._heap)
