"""Chunked pipeline parallelism (Mooncake §3.3): a group of nodes computes the chunks of a prompt at the same time.

Each of the `pipeline_stages` nodes has an equal part of the layers. A prompt is cut into chunks of `max_batched_tokens`
tokens at most; a chunk passes from stage to stage, while the other stages work on other chunks. A prompt enters as soon
as the last chunk of the previous prompt has left the first stage, so that short prompts follow each other as on one
node. Transfers between stages overlap with computation and are not modeled.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from typing_extensions import override

from simulator.engine_models.engine_events import EngineEvent
from simulator.engine_models.engine_profile import EngineProfile
from simulator.engine_models.reference import ReferenceEngine
from simulator.engine_models.simulated_engine import PromptSequence


def chunk_seconds(profile: EngineProfile, prompt_tokens: int, hit_tokens: int) -> list[float]:
    """Return the seconds of each chunk on one node with all layers; each chunk pays the base cost of a prefill."""
    done = min(hit_tokens, prompt_tokens - 1)
    seconds = []
    while done < prompt_tokens:
        tokens = min(prompt_tokens - done, profile.max_batched_tokens)
        done += tokens
        attention_s = profile.prefill_per_token_squared_s * tokens * (done - tokens / 2)
        seconds.append(profile.prefill_base_s + profile.prefill_per_token_s * tokens + attention_s)
    seconds[0] += profile.prefill_per_hit_token_s * hit_tokens
    return seconds


class _Prefill(NamedTuple):
    sequence: PromptSequence
    hit_tokens: int
    ends_s: float


class PipelinedEngine(ReferenceEngine):
    """A prefill engine with pipeline stages.

    Mutable state besides the reference engine's: `_stages` (when each is free) and `_under_way` (prefills in order).
    `_free_at` is when the first stage is free; `_current` stays None.
    """

    def __init__(self, profile: EngineProfile) -> None:
        super().__init__(profile)
        self._stages = [0.0] * profile.pipeline_stages
        self._under_way: deque[_Prefill] = deque()

    @property
    @override
    def running(self) -> int:
        """Number of prefills in the pipeline."""
        return len(self._under_way)

    @property
    @override
    def kv_usage(self) -> float:
        """Share of the blocks that prompts in the pipeline use, 0..1."""
        # Prompts that share blocks count them once each, which may exceed the cache.
        return min(1.0, sum(len(item.sequence.keys) for item in self._under_way) / self.profile.num_blocks)

    @override
    def next_event_time(self) -> float | None:
        """Return when the next prefill ends or can start; None if the engine is empty."""
        start_s = self._next_start()
        if not self._under_way:
            return start_s
        ends_s = self._under_way[0].ends_s
        return ends_s if start_s is None else min(ends_s, start_s)

    @override
    def advance(self, now: float) -> list[EngineEvent]:
        """Advance time to `now` and return the events in order."""
        events: list[EngineEvent] = []
        while (due_s := self.next_event_time()) is not None and due_s <= now:
            if self._under_way and self._under_way[0].ends_s <= due_s:
                ended = self._under_way.popleft()
                self._finish(ended.sequence, ended.hit_tokens, ended.ends_s, events)
            else:
                self._start_operation(due_s, events)
        return events

    @override
    def abort(self, request_id: str, now: float) -> bool:
        """Remove a request at once; the stages finish the chunks that they have begun."""
        for prefill in self._under_way:
            if prefill.sequence.request_id == request_id:
                self._under_way.remove(prefill)
                return True
        return super().abort(request_id, now)

    @override
    def check(self) -> None:
        """Raise AssertionError unless cache, queue and pipeline are consistent."""
        super().check()
        ends = [item.ends_s for item in self._under_way]
        if ends != sorted(ends) or self._stages != sorted(self._stages) or self._current is not None:
            raise AssertionError("a prompt or a stage has overtaken the one before it")

    @override
    def _start_operation(self, at_s: float, events: list[EngineEvent]) -> None:
        """Start the first prompt in the first stage."""
        super()._start_operation(at_s, events)
        # The inherited rules know one prompt at a time; the pipeline takes it over at once.
        sequence, self._current, self._busy_until = self._current, None, None
        if sequence is None:
            raise AssertionError("no prompt entered")
        count, ends_s = len(self._stages), at_s
        for seconds in chunk_seconds(self.profile, sequence.prompt_tokens, self._hit_tokens):
            done_s = at_s
            for stage, free_s in enumerate(self._stages):
                done_s = self._stages[stage] = max(free_s, done_s) + seconds / count
            ends_s = done_s
        self._free_at = self._stages[0]
        self._under_way.append(_Prefill(sequence, self._hit_tokens, ends_s))
