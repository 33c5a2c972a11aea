"""The reference engine: prefill only, one prompt at a time, a prefix cache (scheduling study §1).

The cache is matched when a prefill starts, and blocks are inserted when it ends. The engine generates one output token
regardless of the request's limit, like a prefill engine in a disaggregated fleet.
"""

from __future__ import annotations

from typing_extensions import override

from simulator.engine_models.engine_events import EngineEvent, Finished, FirstTokenEvent, PrefillStarted
from simulator.engine_models.engine_profile import EngineProfile
from simulator.engine_models.queued_engine import CachedEngine
from simulator.engine_models.simulated_engine import PromptSequence


class ReferenceEngine(CachedEngine):
    """Prefills one prompt at a time. Mutable state besides the queue's and the cache: `_current` with its
    `_hit_tokens`.
    """

    def __init__(self, profile: EngineProfile) -> None:
        super().__init__(profile)
        self._current: PromptSequence | None = None
        self._hit_tokens = 0

    @property
    def running(self) -> int:
        """1 while a prefill runs."""
        return int(self._current is not None)

    @property
    def kv_usage(self) -> float:
        """Share of the blocks that the running prompt uses, 0..1."""
        return len(self._current.keys) / self.profile.num_blocks if self._current is not None else 0.0

    def submit(self, sequence: PromptSequence, now: float) -> None:
        """Queue a sequence that arrives at `now`; raise ValueError if the prompt is empty or larger than the cache."""
        if sequence.prompt_tokens < 1:
            raise ValueError("a sequence needs at least one prompt token")
        if len(sequence.keys) > self.profile.num_blocks:
            raise ValueError(f"{len(sequence.keys)} blocks can never fit into {self.profile.num_blocks}")
        self._order += 1
        self._enqueue(sequence, sequence, now)

    def abort(self, request_id: str, now: float) -> bool:
        """Remove a request at once, in any state; return False if it is absent."""
        if self._current is not None and self._current.request_id == request_id:
            self._current = None
            self._stop_operation(now)
            return True
        return self._unqueue(request_id)

    def check(self) -> None:
        """Raise AssertionError unless cache and queue are consistent."""
        self._cache.check()
        if any(item < self._waiting[0] for item in self._waiting):
            raise AssertionError("the queue's head is not its first")
        if self._current is not None and (self._busy_until is None or self._busy_until < self._free_at):
            raise AssertionError("a prefill started while another ran")

    @override
    def _start_operation(self, at_s: float, events: list[EngineEvent]) -> None:
        """Start the first of the waiting prompts, by priority and then arrival."""
        self._see_arrivals(at_s)
        sequence = self._next_waiting()
        self._hit_tokens = self.profile.hit_tokens(sequence.prompt_tokens, self._cache.match(sequence.keys))
        self._current = sequence
        self._busy_until = at_s + self.profile.prefill_s(sequence.prompt_tokens, self._hit_tokens)
        events.append(PrefillStarted(sequence.request_id, at_s, self._hit_tokens))

    @override
    def _finish_operation(self, at_s: float, events: list[EngineEvent]) -> None:
        sequence, self._current = self._current, None
        if sequence is None:
            raise AssertionError("no prefill ran")
        self._finish(sequence, self._hit_tokens, at_s, events)

    def _finish(self, sequence: PromptSequence, hit_tokens: int, at_s: float, events: list[EngineEvent]) -> None:
        self._insert(sequence.request_id, sequence.keys, at_s, events)
        events.append(FirstTokenEvent(sequence.request_id, at_s, hit_tokens))
        events.append(Finished(sequence.request_id, at_s, 1))
