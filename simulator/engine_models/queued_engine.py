"""The common parts of engine models: a clock, operations that run one at a time, the queue of waiting sequences, and a
prefix cache.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

from simulator.engine_cache.prefix_cache import PrefixCache
from simulator.engine_models.engine_events import BlocksRemoved, BlocksStored, EngineEvent
from simulator.engine_models.engine_profile import EngineProfile
from simulator.engine_models.simulated_engine import PromptSequence

Work = TypeVar("Work")


class QueuedEngine(ABC, Generic[Work]):
    """An engine that runs one operation at a time. Times are seconds on a clock that never runs backwards.

    Mutable state: `_arrivals` (submitted, not yet seen by the scheduler), `_waiting` (heap of priority, order, id,
    work), `_busy_until` (end of the operation in progress, None if idle) and `_free_at` (end of the last one).
    """

    def __init__(self, profile: EngineProfile) -> None:
        self.profile = profile
        self._arrivals: deque[tuple[float, tuple[int, int, str, Work]]] = deque()
        self._waiting: list[tuple[int, int, str, Work]] = []
        self._order = 0
        self._busy_until: float | None = None
        self._free_at = 0.0
        self._now = 0.0

    @property
    def waiting(self) -> int:
        """Number of sequences that have not started or must start again."""
        return len(self._waiting) + len(self._arrivals)

    def next_event_time(self) -> float | None:
        """Return the next time at which `advance` has work to do; None if the engine is empty."""
        return self._next_start() if self._busy_until is None else self._busy_until

    def advance(self, now: float) -> list[EngineEvent]:
        """Advance time to `now` and return the events in order."""
        self._forward(now)
        events: list[EngineEvent] = []
        while True:
            if self._busy_until is None:
                start = self._next_start()
                if start is None or start > now:
                    return events
                self._start_operation(start, events)
            elif self._busy_until > now:
                return events
            else:
                self._free_at, self._busy_until = self._busy_until, None
                self._finish_operation(self._free_at, events)

    @abstractmethod
    def _start_operation(self, at_s: float, events: list[EngineEvent]) -> None:
        """Start the next operation and set its end time."""

    @abstractmethod
    def _finish_operation(self, at_s: float, events: list[EngineEvent]) -> None:
        """Apply the effects of the operation that ends."""

    def _resumes(self) -> bool:
        """Return whether the engine has work without a new sequence."""
        return False

    def _next_start(self) -> float | None:
        if self._waiting or self._resumes():
            return self._free_at
        return max(self._free_at, self._arrivals[0][0]) if self._arrivals else None

    def _stop_operation(self, now: float) -> None:
        self._busy_until = None
        self._free_at = max(self._free_at, now)

    def _forward(self, now: float) -> None:
        if now < self._now:
            raise ValueError(f"time runs backwards: {now} s after {self._now} s")
        self._now = now

    def _enqueue(self, sequence: PromptSequence, work: Work, now: float) -> None:
        # The order is unique, so that the heap never compares work.
        self._arrivals.append((now, (sequence.priority, self._order, sequence.request_id, work)))

    def _see_arrivals(self, at_s: float) -> None:
        """Pass the arrivals up to `now` to the scheduler."""
        while self._arrivals and self._arrivals[0][0] <= at_s:
            heappush(self._waiting, self._arrivals.popleft()[1])

    def _next_waiting(self) -> Work:
        """Remove and return the queue's first sequence, by priority and then arrival."""
        return heappop(self._waiting)[3]

    def _unqueue(self, request_id: str) -> bool:
        """Remove a sequence that has not started from the queue; return False if it is absent."""
        before = self.waiting
        self._waiting = [entry for entry in self._waiting if entry[2] != request_id]
        heapify(self._waiting)
        self._arrivals = deque(arrival for arrival in self._arrivals if arrival[1][2] != request_id)
        return self.waiting < before

    def _queued_ids(self) -> list[str]:
        return [*(entry[2] for entry in self._waiting), *(arrival[1][2] for arrival in self._arrivals)]


class CachedEngine(QueuedEngine[PromptSequence], ABC):
    """An engine that keeps blocks in a prefix cache. Mutable state besides the queue's: the cache."""

    def __init__(self, profile: EngineProfile) -> None:
        super().__init__(profile)
        self._cache = PrefixCache(profile.num_blocks, profile.eviction_rule)

    @property
    def cached_blocks(self) -> int:
        """Number of cached blocks, in use or not."""
        return len(self._cache)

    def held_blocks(self, keys: Sequence[int]) -> int:
        """Return how many leading blocks of `keys` are in the cache."""
        return self._cache.match(keys)

    def receive_blocks(self, keys: Sequence[int], now: float) -> list[EngineEvent]:
        """Add leading blocks from another engine to the cache; return the stored and evicted keys."""
        events: list[EngineEvent] = []
        self._insert("", tuple(keys), now, events)
        return events

    def _insert(self, request_id: str, keys: tuple[int, ...], at_s: float, events: list[EngineEvent]) -> None:
        held = self._cache.match(keys)
        removed = self._cache.insert(keys)
        if removed:
            events.append(BlocksRemoved(at_s, tuple(removed)))
        # Where pinned blocks fill the cache, only a part was inserted.
        if held < len(keys) and (stored := keys[held : self._cache.match(keys)]):
            events.append(BlocksStored(request_id, at_s, held, stored, keys[held - 1] if held else None))
