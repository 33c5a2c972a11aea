"""One engine whose requests load their caches from outside, or compute them, in batches with chunked prefill."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence

from typing_extensions import override

from kvstore.connector.load_estimate import LoadEstimate
from kvstore.connector.worker_side import MIN_TIMED_TOKENS
from simulator.engine_models.chunked import ChunkedEngine, ChunkedWork, by_rank
from simulator.engine_models.engine_events import EngineEvent
from simulator.engine_models.engine_profile import EngineProfile
from simulator.engine_models.simulated_engine import PromptSequence
from simulator.link import QueuedLink, Transfer
from simulator.sessions.engine_memory import EngineMemory
from simulator.sessions.hardware import LAYER_SHARE
from simulator.sessions.turn import Turn
from simulator.virtual_clock import Timer, VirtualClock


class SessionEngine(ChunkedEngine):
    """An engine with chunked prefill under the virtual clock (research on advisories, §1).

    It differs from the model in its memory, which has room for the whole context of each request before the request
    joins the batch, and has no prefix cache. A step can wait for a request's cache. Decodes take none of its tokens,
    and prefills read the tokens before their chunks. Callbacks run at the end of a step, before the next one. Mutable
    state besides the model's: `unplaced`, `bound_requests`, `_turns` (admitted requests by id), `_leaving`,
    `_finished`, `_ending` (whether a step is just ending), and the step's `_started_s` and `_stalled_on`.
    """

    def __init__(
        self,
        engine_id: int,
        node: str,
        clock: VirtualClock,
        profile: EngineProfile,
        memory: EngineMemory,
        load_link: QueuedLink,
        store_link: QueuedLink,
        on_first_token: Callable[[SessionEngine, Turn], None],
        on_finished: Callable[[SessionEngine, Turn], None],
        *,
        layerwise: bool = True,
    ) -> None:
        super().__init__(profile)
        self.engine_id = engine_id
        self.name = f"engine-{engine_id + 1}"
        self.node = node
        self.memory = memory
        self.estimate = LoadEstimate()
        """The estimate of its KV connector: whether a load is faster than computing."""
        self.load_link = load_link
        self.store_link = store_link
        self.unplaced: deque[Turn] = deque()
        """Requests bound to this engine that have no memory yet."""
        self.bound_requests = 0
        self._clock = clock
        self._timer = Timer(clock, self._run)
        self._on_first_token = on_first_token
        self._on_finished = on_finished
        self._tail_share = LAYER_SHARE if layerwise else 1.0
        self._turns: dict[str, Turn] = {}
        self._leaving: list[tuple[Turn, Callable[[Turn, bool], None]]] = []
        self._finished: list[Turn] = []
        self._ending = False
        self._started_s = 0.0
        self._stalled_on: set[Transfer] = set()

    @property
    def pending_requests(self) -> int:
        """Number of requests that have not started, as in the engine's load report."""
        return self.bound_requests - self.running

    @property
    def resident_tokens(self) -> int:
        """Number of tokens that the decoding requests attend to."""
        return self._batch.context

    @property
    def step_s(self) -> float:
        """Return the seconds of a decode step of the current batch."""
        return self.profile.step_s(len(self._batch), self._batch.context)

    @property
    def decoding(self) -> list[Turn]:
        """The decoding requests, in the order in which they joined."""
        return [self._turns[name] for name in self._decoding]

    def wait(self, turn: Turn) -> None:
        """Queue a request for memory, after those of its priority class and of higher classes."""
        position = len(self.unplaced)
        if turn.session.priority:
            position = sum(item.session.priority for item in self.unplaced)
        self.unplaced.insert(position, turn)

    def bind(self) -> None:
        """Count a request that this engine will serve."""
        self.bound_requests += 1

    def unbind(self) -> None:
        """Remove a request from that count."""
        self.bound_requests -= 1

    def admit(self, turn: Turn) -> None:
        """Add a request that has memory to the batch at the end of the current step.

        A request that has generated tokens has migrated here, and continues with its remaining steps.
        """
        self._turns[turn.request_id] = turn
        rank = 0 if turn.session.priority else 1
        self.submit(PromptSequence(turn.request_id, (), turn.prompt_end, turn.answer_tokens, rank), self._clock.now)
        if self._busy_until is None and not self._ending:
            self._run()
        else:
            self._timer.set(self._busy_until)

    def leave(self, turn: Turn, on_left: Callable[[Turn, bool], None]) -> None:
        """Remove a request at the end of the current step. `on_left` receives whether it was still decoding then."""
        self._leaving.append((turn, on_left))
        if self._busy_until is not None:
            self._busy_until = self._batch.cut_run(self._clock.now, self._busy_until)
            self._timer.set(self._busy_until)

    def tokens_left(self, turn: Turn) -> int:
        """Return how many output tokens a request still needs."""
        work = self._decoding.get(turn.request_id)
        return turn.answer_tokens - (
            turn.generated if work is None else work.generated + self._batch.made(turn.request_id)
        )

    def loaded(self, transfer: Transfer) -> None:
        """Resume the step that waits for this cache."""
        if transfer in self._stalled_on:
            self._stalled_on.discard(transfer)
            if not self._stalled_on:
                step_s = self._chunk_step_s()
                self._busy_until = max(self._started_s + step_s, self._clock.now + step_s * self._tail_share)
                self._timer.set(self._busy_until)

    def _run(self) -> None:
        self.advance(self._clock.now)
        self._timer.set(self._busy_until)

    @override
    def _plan_step(self, at_s: float, events: list[EngineEvent]) -> int:
        """Start all waiting requests, and share the step's tokens among prefills by priority and arrival."""
        while self._waiting and self.running < self.profile.max_running:
            work = self._next_waiting()
            turn = self._turns[work.sequence.request_id]
            if turn.generated:
                work.generated = turn.generated
                self._decode(work, at_s, events)
            else:
                work.table.computed = turn.loaded_tokens
                self._prefilling[work.sequence.request_id] = work
        self._prefilling = {work.sequence.request_id: work for work in by_rank(self._prefilling)}
        budget = self.profile.max_batched_tokens
        for work in self._prefilling.values():
            work.chunk = min(budget, work.wanted - work.table.computed)
            budget -= work.chunk
        return 0

    @override
    def _end_of_step(self, at_s: float, chunks: Sequence[tuple[int, int]], loaded_tokens: int) -> float | None:
        self._started_s = at_s
        if not chunks:
            return super()._end_of_step(at_s, chunks, loaded_tokens)
        self._batch.start_step()
        loads = [turn.load for turn, _, _ in self._chunks()]
        self._stalled_on = {load for load in loads if load is not None and not (load.done or load.cancelled)}
        return math.inf if self._stalled_on else at_s + self._chunk_step_s()

    def _chunks(self) -> list[tuple[Turn, int, int]]:
        """Return the request of each chunk of the step, its tokens, and its end in the prompt."""
        works = [work for work in self._prefilling.values() if work.chunk]
        return [(self._turns[work.sequence.request_id], work.chunk, work.table.computed + work.chunk) for work in works]

    def _chunk_step_s(self) -> float:
        """Return the seconds of the current step. Prefills read the tokens before their chunks, as decodes do."""
        chunks = self._chunks()
        read_tokens = self._batch.context + sum(end - tokens for _, tokens, end in chunks)
        sizes = [(tokens, end) for _, tokens, end in chunks]
        seconds = self.profile.mixed_step_s(len(self._batch) + len(chunks), read_tokens, sizes)
        return seconds + sum(turn.step_extra_s for turn, _, _ in chunks)

    @override
    def _finish_operation(self, at_s: float, events: list[EngineEvent]) -> None:
        self._ending = True
        super()._finish_operation(at_s, events)
        leaving, self._leaving = self._leaving, []
        for turn, on_left in leaving:
            on_left(turn, self._remove(turn))
        self._ending = False
        finished, self._finished = self._finished, []
        for turn in finished:
            turn.finished_s = at_s
            self._on_finished(self, turn)

    @override
    def _finish_chunks(self, works: Sequence[ChunkedWork], at_s: float, events: list[EngineEvent]) -> None:
        computed = sum(work.chunk for work in works)
        if computed >= MIN_TIMED_TOKENS:
            self.estimate.computed((at_s - self._started_s) / (computed + len(self._decoding)))
        for work in works:
            self._turns[work.sequence.request_id].step_extra_s = 0.0
        super()._finish_chunks(works, at_s, events)

    @override
    def _token(self, work: ChunkedWork, at_s: float, events: list[EngineEvent]) -> None:
        turn = self._turns[work.sequence.request_id]
        turn.first_token_s = at_s
        self._on_first_token(self, turn)

    @override
    def _due_in(self, work: ChunkedWork, made: int) -> int:
        """Return the steps until a request ends: its memory never grows."""
        return work.sequence.output_tokens - made

    @override
    def _store(
        self, work: ChunkedWork, computed: int, at_s: float, events: list[EngineEvent], *, loaded: bool = False
    ) -> None:
        """Record what is computed. Nothing is kept for other requests."""
        work.table.computed = computed

    @override
    def _end(self, work: ChunkedWork, at_s: float, events: list[EngineEvent]) -> None:
        self._live.discard(work.sequence.request_id)
        self._finished.append(self._turns.pop(work.sequence.request_id))

    def _remove(self, turn: Turn) -> bool:
        work = self._decoding.get(turn.request_id)
        if work is None:
            return False
        self._stop(work)
        turn.generated = work.generated
        self._live.discard(turn.request_id)
        del self._turns[turn.request_id]
        return True
