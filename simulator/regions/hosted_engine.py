"""One engine of a region under the virtual clock: it gets requests and publishes its events at their times."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace
from typing_extensions import override

from simulator.engine_models.block_pool import BlockPool
from simulator.engine_models.chunked import ChunkedEngine
from simulator.engine_models.engine_events import EngineEvent, Finished, FirstTokenEvent, PrefillStarted
from simulator.engine_models.engine_profile import EngineProfile
from simulator.engine_models.fifo_engine import EngineModel
from simulator.engine_models.simulated_engine import PromptSequence
from simulator.regions.region_request import RegionRequest
from simulator.virtual_clock import Timer, VirtualClock

HostedModel = ChunkedEngine | EngineModel
Publish = Callable[["HostedEngine", list[EngineEvent]], None]
"""Receives the events of an engine at their time."""


class HostedEngine:
    """One engine. Mutable: `publish`, its requests by id, its timer, and its finished tokens.

    `sharing` are the engines that share its memory.
    """

    def __init__(self, engine_id: str, region: str, engine: HostedModel, clock: VirtualClock) -> None:
        self.engine_id, self.region, self.engine = engine_id, region, engine
        self.publish: Publish = lambda _engine, _events: None
        self.requests: dict[str, RegionRequest] = {}
        self.sharing: Sequence[HostedEngine] = ()
        self._clock, self._timer = clock, Timer(clock, self._advance)
        self._finished_tokens = 0

    @property
    def produced(self) -> int:
        """Number of tokens generated so far."""
        return self._finished_tokens + self.engine.running_tokens

    @property
    def room_tokens(self) -> int:
        """Number of tokens that no running request holds."""
        return int((1.0 - self.engine.kv_usage) * self.engine.kv_tokens)

    def arrive(self, request: RegionRequest) -> None:
        """Queue a request. Raise ValueError if it can never run."""
        prompt, whole = request.prompt, request.whole
        self.engine.submit(
            PromptSequence(
                request.request_id,
                prompt.keys,
                prompt.tokens,
                request.output.tokens,
                answer_keys=whole.keys[len(prompt.keys) :],
            ),
            self._clock.now,
        )
        self.requests[request.request_id] = request
        self.schedule()

    def schedule(self) -> None:
        """Advance the engine when it is due, after a change from outside."""
        self._timer.set(self.engine.next_event_time())

    def _advance(self) -> None:
        events = self.engine.advance(self._clock.now)
        for event in events:
            if isinstance(event, PrefillStarted):
                request = self.requests[event.request_id]
                request.admitted_s, request.cached_tokens = event.at_s, event.cached_tokens
            elif isinstance(event, FirstTokenEvent):
                request = self.requests[event.request_id]
                request.first_token_s = event.at_s + request.way_back_s
            elif isinstance(event, Finished):
                self._finished_tokens += event.output_tokens
        self.publish(self, events)
        self.schedule()
        if any(isinstance(event, Finished) for event in events):
            for other in self.sharing:
                if isinstance(other.engine, PooledEngine) and other.engine.resume(self._clock.now):
                    other.schedule()


class PooledEngine(ChunkedEngine):
    """An engine that shares the memory of others, at no cost: a theoretical bound.

    Mutable besides its part of the engine's state: whether it waits for another engine to free memory.
    """

    def __init__(self, profile: EngineProfile, pool: BlockPool, engines: list[PooledEngine]) -> None:
        super().__init__(profile, pool=pool)
        self._engines, self._stalled = engines, False
        engines.append(self)

    def resume(self, now: float) -> bool:
        """Try again to start a sequence; return whether the engine waited for memory."""
        stalled, self._stalled = self._stalled, False
        if stalled:
            self._free_at = max(self._free_at, now)
        return stalled

    @override
    def check(self) -> None:
        self._pool.check()

    @override
    def _next_start(self) -> float | None:
        return None if self._stalled else super()._next_start()

    @override
    def _end_of_step(self, at_s: float, chunks: Sequence[tuple[int, int]], loaded_tokens: int) -> float | None:
        if chunks or self._decoding:
            return super()._end_of_step(at_s, chunks, loaded_tokens)
        # It tries again at once if it has freed memory itself, else when another engine has.
        self._stalled = not self._preempted
        return None if self._stalled else at_s

    @override
    def _answers_to_come(self) -> int:
        return sum(super(PooledEngine, engine)._answers_to_come() for engine in self._engines)


def pooled_engines(profile: EngineProfile, count: int) -> list[PooledEngine]:
    """Return engines that share the memory of all."""
    whole = replace(profile, num_blocks=profile.num_blocks * count)
    pool, engines = BlockPool(whole.num_blocks), list[PooledEngine]()
    for _ in range(count):
        PooledEngine(whole, pool, engines)
    return engines
