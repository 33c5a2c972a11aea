"""One engine whose requests load their caches from outside, or compute them, in batches with chunked prefill."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from kvstore.connector.load_estimate import LoadEstimate
from kvstore.connector.worker_side import MIN_TIMED_TOKENS
from simulator.engine_models.decode_batch import DecodeBatch
from simulator.engine_models.engine_profile import EngineProfile
from simulator.sessions.engine_memory import EngineMemory
from simulator.sessions.hardware import LAYER_SHARE
from simulator.sessions.links import SessionLink, SessionTransfer
from simulator.sessions.turn import Turn
from simulator.virtual_clock import VirtualClock


class SessionEngine:
    """An engine under the virtual clock (research on advisories, §1).

    Unlike the engine models, it holds the whole context of running requests and of prefetches only, and a step can wait
    for a request's cache. Steps cost what the profile states, and decode steps of an unchanged batch are simulated at
    once (DecodeBatch). A request that joins waits for the end of the current step. Mutable state: `waiting`,
    `bound_requests`, `_batch` with `_decoding` (its requests by id), `_ready`, `_prefilling`, `_leaving`, and the
    current step or run (`_started_s`, `_ends_s`, `_version`, `_chunk`, `_stalled_on`).
    """

    def __init__(
        self,
        engine_id: int,
        node: str,
        clock: VirtualClock,
        profile: EngineProfile,
        memory: EngineMemory,
        load_link: SessionLink,
        store_link: SessionLink,
        on_first_token: Callable[[SessionEngine, Turn], None],
        on_finished: Callable[[SessionEngine, Turn], None],
        *,
        layerwise: bool = True,
    ) -> None:
        self.engine_id = engine_id
        self.name = f"engine-{engine_id + 1}"
        self.node = node
        self.profile = profile
        self.memory = memory
        self.estimate = LoadEstimate()
        """The estimate of its KV connector: whether a load is faster than computing."""
        self.load_link = load_link
        self.store_link = store_link
        self.waiting: deque[Turn] = deque()
        """Requests bound to this engine that have no memory yet."""
        self.bound_requests = 0
        self._clock = clock
        self._on_first_token = on_first_token
        self._on_finished = on_finished
        self._tail_share = LAYER_SHARE if layerwise else 1.0
        self._batch = DecodeBatch(profile)
        self._decoding: dict[str, Turn] = {}
        self._ready: deque[Turn] = deque()
        self._prefilling: deque[Turn] = deque()
        self._leaving: list[tuple[Turn, Callable[[Turn, bool], None]]] = []
        self._started_s = self._ends_s = 0.0
        self._version = 0
        self._busy = False
        self._chunk: list[tuple[Turn, int]] = []
        self._stalled_on: set[SessionTransfer] = set()

    @property
    def pending_requests(self) -> int:
        """Number of requests that have not started, as in the engine's load report."""
        return self.bound_requests - len(self._decoding) - len(self._prefilling)

    @property
    def resident_tokens(self) -> int:
        """Number of tokens that the decoding requests attend to."""
        return self._batch.context

    @property
    def step_s(self) -> float:
        """Return the seconds of a decode step of the current batch."""
        return self.profile.step_s(len(self._batch), self._batch.context)

    @property
    def running(self) -> list[Turn]:
        """The decoding requests, in the order in which they joined."""
        return list(self._decoding.values())

    def wait(self, turn: Turn) -> None:
        """Queue a request for memory, after those of its priority class and of higher classes."""
        position = len(self.waiting)
        if turn.session.priority:
            position = sum(item.session.priority for item in self.waiting)
        self.waiting.insert(position, turn)

    def bind(self) -> None:
        """Count a request that this engine will serve."""
        self.bound_requests += 1

    def unbind(self) -> None:
        """Remove a request from that count."""
        self.bound_requests -= 1

    def admit(self, turn: Turn) -> None:
        """Add a request that has memory to the batch at the end of the current step.

        A request without remaining prefill has migrated here, and continues with its remaining steps.
        """
        self._ready.append(turn)
        self._interrupt()

    def leave(self, turn: Turn, on_left: Callable[[Turn, bool], None]) -> None:
        """Remove a request at the end of the current step. `on_left` receives whether it was still decoding then."""
        self._leaving.append((turn, on_left))
        self._interrupt()

    def tokens_left(self, turn: Turn) -> int:
        """Return how many output tokens a decoding request still needs."""
        made = self._batch.made(turn.request_id) if turn.request_id in self._batch else 0
        return turn.steps_left - made

    def loaded(self, transfer: SessionTransfer) -> None:
        """Resume the step that waits for this cache."""
        if transfer in self._stalled_on:
            self._stalled_on.discard(transfer)
            if not self._stalled_on:
                step_s = self._chunk_step_s()
                self._schedule(max(self._started_s + step_s, self._clock.now + step_s * self._tail_share))

    def _interrupt(self) -> None:
        if not self._busy:
            self._begin()
        elif not self._chunk:
            end_s = self._batch.cut_run(self._clock.now, self._ends_s)
            if end_s != self._ends_s:
                self._schedule(end_s)

    def _schedule(self, end_s: float) -> None:
        self._version += 1
        self._ends_s = end_s
        self._clock.at(end_s, partial(self._boundary, self._version))

    def _boundary(self, version: int) -> None:
        if version != self._version:
            return
        finished = [self._decoding[name] for name in self._batch.finish_run()]
        for turn in finished:
            self._remove(turn)
        finished += self._end_chunk()
        for turn, on_left in self._leaving:
            on_left(turn, self._remove(turn))
        self._leaving.clear()
        self._busy = False
        for turn in finished:
            turn.finished_s = self._clock.now
            self._on_finished(self, turn)
        if not self._busy:
            self._begin()

    def _end_chunk(self) -> list[Turn]:
        finished = []
        computed = sum(tokens for _, tokens in self._chunk)
        if computed >= MIN_TIMED_TOKENS:
            self.estimate.computed((self._clock.now - self._started_s) / (computed + len(self._decoding)))
        for turn, tokens in self._chunk:
            turn.prefill_left -= tokens
            turn.step_extra_s = 0.0
            if not turn.prefill_left:
                self._prefilling.remove(turn)
                turn.first_token_s = self._clock.now
                self._on_first_token(self, turn)
                turn.steps_left = turn.answer_tokens - 1
                if turn.steps_left:
                    self._decode(turn)
                else:
                    finished.append(turn)
        self._chunk = []
        return finished

    def _decode(self, turn: Turn) -> None:
        self._decoding[turn.request_id] = turn
        self._batch.join(turn.request_id, turn.memory_tokens - turn.steps_left, turn.steps_left)

    def _remove(self, turn: Turn) -> bool:
        if self._decoding.pop(turn.request_id, None) is None:
            return False
        turn.steps_left -= self._batch.leave(turn.request_id)
        return True

    def _begin(self) -> None:
        while self._ready and len(self._decoding) + len(self._prefilling) < self.profile.max_running:
            turn = self._ready.popleft()
            if turn.prefill_left:
                self._prefilling.append(turn)
            else:
                self._decode(turn)
        self._started_s = self._clock.now
        self._busy = bool(self._decoding or self._prefilling)
        if self._prefilling:
            self._begin_chunk()
        elif self._decoding:
            self._schedule(self._batch.start_run(self._started_s, None))

    def _begin_chunk(self) -> None:
        self._batch.start_step()
        room = self.profile.max_batched_tokens
        for turn in sorted(self._prefilling, key=lambda item: not item.session.priority):
            tokens = min(room, turn.prefill_left)
            self._chunk.append((turn, tokens))
            room -= tokens
            if not room:
                break
        self._stalled_on = {
            turn.load
            for turn, _ in self._chunk
            if turn.load is not None and not (turn.load.done or turn.load.cancelled)
        }
        if self._stalled_on:
            self._version += 1
        else:
            self._schedule(self._started_s + self._chunk_step_s())

    def _chunk_step_s(self) -> float:
        """Return the seconds of the current step. Prefills read the tokens before their chunks, as decodes do."""
        ends = [(tokens, turn.prompt_end - turn.prefill_left + tokens, turn) for turn, tokens in self._chunk]
        batch = len(self._batch) + len(self._chunk)
        read_tokens = self._batch.context + sum(end - tokens for tokens, end, _ in ends)
        seconds = self.profile.mixed_step_s(batch, read_tokens, [(tokens, end) for tokens, end, _ in ends])
        return seconds + sum(turn.step_extra_s for turn, _ in self._chunk)
