"""An engine with continuous batching: one L4 with Llama 3.1 8B, the constants of the study (SkyWalker §2.1, §3.3).

Prefill has precedence over decoding. A batch admits requests in order while prompts and a reserve for outputs fit into
memory. A request that shares a prefix with a prompt of the current batch waits for the next batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush

import msgspec

from simulator.regions.region_request import RegionRequest
from simulator.regions.segment_cache import SegmentCache
from simulator.virtual_clock import VirtualClock


class BatchEngineProfile(msgspec.Struct, frozen=True):
    """Speed of an engine (seconds; tokens)."""

    prefill_s: float = 0.02
    prefill_s_per_token: float = 0.000547
    prefill_tokens: int = 2048
    """Uncached tokens per prefill batch; a longer prompt is a separate batch."""
    step_s: float = 0.055
    step_s_per_request: float = 0.0003
    step_s_per_token: float = 0.00000044
    reserve_tokens: int = 400
    """Memory kept free for the output of each running request."""
    speed: float = 1.0


class KvMemory:
    """KV memory of one engine, or shared by several. Mutable state: its cache and the running requests."""

    def __init__(self, tokens: int) -> None:
        self.cache = SegmentCache(tokens)
        self.generated = 0
        self.running = 0
        self.engines: list[BatchEngine] = []

    def fits(self, request: RegionRequest, reserve_tokens: int) -> bool:
        """Whether the prompt and the reserves fit. A request that runs alone always fits."""
        prompts = self.cache.locked + self.cache.to_lock(request.prompt)
        answers = reserve_tokens + max(self.generated, reserve_tokens * self.running)
        return self.running == 0 or prompts + answers <= self.cache.capacity

    @property
    def full(self) -> bool:
        """Whether running requests exceed the memory."""
        return self.running > 1 and self.cache.locked + self.generated > self.cache.capacity

    def evict(self) -> None:
        """Evict cached segments to make room for the tokens that running requests have generated."""
        self.cache.shrink(self.cache.capacity - self.generated)


class BatchEngine:
    """One engine. Mutable state: `waiting`, `_running` (request → its entry), the batch's sums, and its counters.

    `_finishing` is a heap of (step of the last token, entry, request). An entry that is no longer in `_running` was
    retracted.
    """

    def __init__(
        self,
        engine_id: str,
        region: str,
        clock: VirtualClock,
        memory: KvMemory,
        profile: BatchEngineProfile,
        ended: Callable[[RegionRequest, BatchEngine], None],
    ) -> None:
        self.engine_id, self.region = engine_id, region
        self.waiting: deque[RegionRequest] = deque()
        self.produced = 0
        self.memory = memory
        memory.engines.append(self)
        self._clock, self._profile, self._ended = clock, profile, ended
        self._running: dict[RegionRequest, int] = {}
        self._first_step: dict[RegionRequest, int] = {}
        self._finishing: list[tuple[int, int, RegionRequest]] = []
        self._entries = 0
        self._steps = 0
        self._context = 0
        self._busy = False

    def arrive(self, request: RegionRequest) -> None:
        """Queue a request; an idle engine starts it at once."""
        self.waiting.append(request)
        self.wake()

    def wake(self) -> None:
        """Start the next step if none runs."""
        if not self._busy:
            self._next()

    def _next(self) -> None:
        batch, uncached = self._admit() if self.waiting else ([], 0)
        profile = self._profile
        self._busy = bool(batch or self._running)
        if batch:
            took = profile.prefill_s + profile.prefill_s_per_token * uncached
            self._clock.after(took / profile.speed, self._prefilled, batch)
        elif self._running:
            size = len(self._running)
            took = profile.step_s + profile.step_s_per_request * size + profile.step_s_per_token * self._context
            self._clock.after(took / profile.speed, self._decoded)

    def _admit(self) -> tuple[list[RegionRequest], int]:
        cache, total, kept = self.memory.cache, 0, deque[RegionRequest]()
        batch: list[RegionRequest] = []
        forming: set[int] = set()
        while self.waiting:
            request = self.waiting[0]
            deepest, cached = cache.deepest(request.prompt)
            uncached = max(request.prompt.tokens - cached, 1)
            if deepest in forming:
                kept.append(self.waiting.popleft())
                continue
            too_long = batch and total + uncached > self._profile.prefill_tokens
            if too_long or not self.memory.fits(request, self._profile.reserve_tokens):
                break
            batch.append(self.waiting.popleft())
            forming.update(key for key, end, _ in request.prompt.deepest_first if end > cached)
            total += uncached
            self._take(request, cached)
        self.waiting.extendleft(reversed(kept))
        self.memory.evict()
        return batch, total

    def _take(self, request: RegionRequest, cached: int) -> None:
        self.memory.cache.lock(request.prompt)
        self.memory.running += 1
        if request.admitted_s is None:
            request.admitted_s, request.cached_tokens = self._clock.now, cached

    def _prefilled(self, batch: list[RegionRequest]) -> None:
        for request in batch:
            self._entries += 1
            self._running[request] = self._entries
            self._first_step[request] = self._steps
            heappush(self._finishing, (self._steps + request.output.tokens - 1, self._entries, request))
            self._context += request.prompt.tokens
            if request.first_token_s is None:
                request.first_token_s = self._clock.now + request.way_back_s
        self._grow(len(batch))

    def _decoded(self) -> None:
        self._steps += 1
        self._grow(len(self._running))

    def _grow(self, tokens: int) -> None:
        """Count one token for each of `tokens` requests, end the finished requests, and continue."""
        self.produced += tokens
        self.memory.generated += tokens
        self._context += tokens
        ended = False
        while self._finishing and self._finishing[0][0] <= self._steps:
            _, entry, request = heappop(self._finishing)
            if self._running.get(request) == entry:
                self._finish(request)
                ended = True
        while self.memory.full and self._running:
            self._retract()
        self.memory.evict()
        self._next()
        if ended:
            for engine in self.memory.engines:
                engine.wake()

    def _leave(self, request: RegionRequest) -> int:
        del self._running[request]
        generated = self._steps - self._first_step.pop(request) + 1
        self.memory.generated -= generated
        self.memory.running -= 1
        self._context -= request.prompt.tokens + generated
        return generated

    def _finish(self, request: RegionRequest) -> None:
        self._leave(request)
        self.memory.cache.add_leaf(request.output)
        self.memory.cache.unlock(request.prompt)
        self._ended(request, self)

    def _retract(self) -> None:
        """Release the memory of the youngest request, which then restarts from its prompt."""
        request = next(reversed(self._running))
        self.produced -= self._leave(request)
        self.memory.cache.unlock(request.prompt)
        self.waiting.appendleft(request)
