"""The reference engine: prefill only, one prompt at a time, a prefix cache (scheduling study §1).

Hits are looked up when a prefill starts and blocks are inserted when it ends. It makes one output
token whatever it is asked for, as a prefill engine does in a disaggregated fleet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from simulator.engine_cache.prefix_cache import PrefixCache
from simulator.engine_models.engine_events import (
    BlocksRemoved,
    BlocksStored,
    EngineEvent,
    Finished,
    FirstToken,
    PrefillStarted,
)
from simulator.engine_models.engine_profile import EngineProfile
from simulator.engine_models.fifo_engine import PromptSequence

_Waiting = tuple[int, int, PromptSequence]


class ReferenceEngine:
    """A prefill engine; times are seconds of one clock that never runs backwards.

    Mutable state: `_arrivals` (submitted, not yet looked at), `_waiting` (heap of priority, order,
    sequence), `_current` with its `_hit_tokens` and `_ends_s`, `_free_at` (end of the last prefill) and
    the cache.
    """

    def __init__(self, profile: EngineProfile) -> None:
        self.profile = profile
        self._cache = PrefixCache(profile.num_blocks, profile.eviction_rule)
        self._arrivals: deque[tuple[float, _Waiting]] = deque()
        self._waiting: list[_Waiting] = []
        self._order = 0
        self._current: PromptSequence | None = None
        self._hit_tokens = 0
        self._ends_s = 0.0
        self._free_at = 0.0

    @property
    def running(self) -> int:
        """1 while a prefill runs."""
        return int(self._current is not None)

    @property
    def waiting(self) -> int:
        """Sequences that have not started."""
        return len(self._waiting) + len(self._arrivals)

    @property
    def cached_blocks(self) -> int:
        """Blocks in the cache."""
        return len(self._cache)

    @property
    def kv_usage(self) -> float:
        """Share of the blocks that the running prompt takes, 0..1."""
        return len(self._current.keys) / self.profile.num_blocks if self._current is not None else 0.0

    def submit(self, sequence: PromptSequence, now: float) -> None:
        """Queue a sequence that arrives at `now`; raises ValueError on an empty prompt or one over the cache."""
        if sequence.prompt_tokens < 1:
            raise ValueError("a sequence needs at least one prompt token")
        if len(sequence.keys) > self.profile.num_blocks:
            raise ValueError(f"{len(sequence.keys)} blocks can never fit into {self.profile.num_blocks}")
        self._order += 1
        self._arrivals.append((now, (sequence.priority, self._order, sequence)))

    def next_event_time(self) -> float | None:
        """Return when the running prefill ends or the next one can start; None while the engine is empty."""
        return self._ends_s if self._current is not None else self._next_start()

    def advance(self, now: float) -> list[EngineEvent]:
        """Let time pass until `now` and return what happened, in order."""
        events: list[EngineEvent] = []
        while True:
            if self._current is None:
                if not self._start(now, events):
                    return events
            elif self._ends_s > now:
                return events
            else:
                self._finish(self._current, events)

    def abort(self, request_id: str, now: float) -> bool:
        """Take a request out at once, wherever it is; returns False where it is not (harmless)."""
        if self._current is not None and self._current.request_id == request_id:
            self._current = None
            self._free_at = max(self._free_at, now)
            return True
        before = self.waiting
        self._waiting = [entry for entry in self._waiting if entry[2].request_id != request_id]
        heapify(self._waiting)
        self._arrivals = deque(each for each in self._arrivals if each[1][2].request_id != request_id)
        return self.waiting < before

    def held_blocks(self, keys: Sequence[int]) -> int:
        """Return how many leading blocks of `keys` the cache holds."""
        return self._cache.match(keys)

    def receive_blocks(self, keys: Sequence[int], now: float) -> list[EngineEvent]:
        """Put leading blocks that came from another engine into the cache; return what was stored and evicted."""
        events: list[EngineEvent] = []
        self._insert("", tuple(keys), now, events)
        return events

    def check(self) -> None:
        """Raise AssertionError unless cache and queue are in order."""
        self._cache.check()
        if any(each < self._waiting[0] for each in self._waiting):
            raise AssertionError("the queue's head is not its first")
        if self._current is not None and self._ends_s < self._free_at:
            raise AssertionError("a prefill started while another ran")

    def _next_start(self) -> float | None:
        if self._waiting:
            return self._free_at
        return max(self._free_at, self._arrivals[0][0]) if self._arrivals else None

    def _start(self, now: float, events: list[EngineEvent]) -> bool:
        """Start the first prompt, by priority and then arrival, of those that are here when the engine is free."""
        at_s = self._next_start()
        if at_s is None or at_s > now:
            return False
        arrivals = self._arrivals
        while arrivals and arrivals[0][0] <= at_s:
            heappush(self._waiting, arrivals.popleft()[1])
        sequence = heappop(self._waiting)[2]
        self._hit_tokens = self.profile.hit_tokens(sequence.prompt_tokens, self._cache.match(sequence.keys))
        self._current = sequence
        self._ends_s = at_s + self.profile.prefill_s(sequence.prompt_tokens, self._hit_tokens)
        events.append(PrefillStarted(sequence.request_id, at_s, self._hit_tokens))
        return True

    def _finish(self, sequence: PromptSequence, events: list[EngineEvent]) -> None:
        at_s = self._ends_s
        self._current = None
        self._free_at = at_s
        self._insert(sequence.request_id, sequence.keys, at_s, events)
        events.append(FirstToken(sequence.request_id, at_s, self._hit_tokens))
        events.append(Finished(sequence.request_id, at_s, 1))

    def _insert(self, request_id: str, keys: tuple[int, ...], at_s: float, events: list[EngineEvent]) -> None:
        cache = self._cache
        held = cache.match(keys)
        removed = cache.insert(keys)
        if removed:
            events.append(BlocksRemoved(at_s, tuple(removed)))
        if held < len(keys):
            now_held = cache.match(keys)
            if now_held > held:
                events.append(
                    BlocksStored(request_id, at_s, held, keys[held:now_held], keys[held - 1] if held else None)
                )
