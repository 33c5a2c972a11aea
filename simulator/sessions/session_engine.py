"""One engine with continuous batching and chunked prefill. It simulates one step at a time, or many during pure
decode.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from functools import partial
from heapq import heapify, heappop, heappush

from kvstore.connector.load_estimate import LoadEstimate
from kvstore.connector.worker_side import MIN_TIMED_TOKENS
from simulator.sessions.engine_memory import EngineMemory
from simulator.sessions.hardware import CHUNK_TOKENS, LAYER_SHARE, MAX_BATCH, ServedModel
from simulator.sessions.links import SessionLink, SessionTransfer
from simulator.sessions.turn import Turn
from simulator.virtual_clock import VirtualClock


class SessionEngine:
    """An engine under the virtual clock (research on advisories, §1).

    The duration of a step is a base time, a share per request, the time to read all KV tokens of the batch, and the
    time of its prefill chunk. While the batch stays the same, decode steps are simulated in one jump. A request that
    joins waits for the end of the current step. Mutable state: `waiting`, `bound_*`, `resident_tokens`, `_ready`,
    `_prefilling`, `_running`, `_leaving`, and the current jump (`_steps`, `_jump`, `_started_s`, `_version`, `_chunk`,
    `_stalled_on`).
    """

    def __init__(
        self,
        engine_id: int,
        node: str,
        clock: VirtualClock,
        model: ServedModel,
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
        self.model = model
        self.memory = memory
        self.estimate = LoadEstimate()
        """The estimate of its KV connector: whether a load is faster than computing."""
        self.load_link = load_link
        self.store_link = store_link
        self.waiting: deque[Turn] = deque()
        """Requests bound to this engine that have no memory yet."""
        self.bound_requests = 0
        self.resident_tokens = 0
        self._clock = clock
        self._on_first_token = on_first_token
        self._on_finished = on_finished
        self._tail_share = LAYER_SHARE if layerwise else 1.0
        self._ready: deque[Turn] = deque()
        self._prefilling: deque[Turn] = deque()
        self._running: list[tuple[int, int, Turn]] = []
        self._leaving: list[tuple[Turn, Callable[[Turn, bool], None]]] = []
        self._steps = 0
        self._joined = 0
        self._jump = 0
        self._started_s = 0.0
        self._version = 0
        self._busy = False
        self._chunk: list[tuple[Turn, int]] = []
        self._stalled_on: set[SessionTransfer] = set()

    @property
    def pending_requests(self) -> int:
        """Number of requests that have not started, as in the engine's load report."""
        return self.bound_requests - len(self._running) - len(self._prefilling)

    @property
    def step_s(self) -> float:
        """Return the seconds of a decode step of the current batch."""
        batch = len(self._running)
        return self.model.step_s + batch * self.model.step_s_per_request + self._read_s

    @property
    def running(self) -> list[Turn]:
        """The decoding requests, in the order in which they will end."""
        return [turn for _, _, turn in sorted(self._running)]

    @property
    def _read_s(self) -> float:
        return self.resident_tokens * self.model.read_s_per_token

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

        A request without remaining prefill has migrated here, and continues until its `finish_step`.
        """
        self._ready.append(turn)
        self._interrupt()

    def leave(self, turn: Turn, on_left: Callable[[Turn, bool], None]) -> None:
        """Remove a request at the end of the current step. `on_left` receives whether it was still decoding then."""
        self._leaving.append((turn, on_left))
        self._interrupt()

    def tokens_left(self, turn: Turn) -> int:
        """Return how many output tokens a decoding request still needs."""
        return turn.finish_step - self._steps

    def loaded(self, transfer: SessionTransfer) -> None:
        """Resume the step that waits for this cache."""
        if transfer in self._stalled_on:
            self._stalled_on.discard(transfer)
            if not self._stalled_on:
                step_s = self._chunk_step_s()
                end_s = max(self._started_s + step_s, self._clock.now + step_s * self._tail_share)
                self._clock.at(end_s, partial(self._boundary, self._version))

    def _interrupt(self) -> None:
        if not self._busy:
            self._begin()
        elif not self._chunk and self._jump > 1:
            elapsed = self._clock.now - self._started_s
            steps = self._steps_within(elapsed)
            if steps < self._jump:
                self._jump = steps
                self._schedule(self._started_s + self._jump_s(steps))

    def _steps_within(self, elapsed_s: float) -> int:
        """Return the minimum number of whole steps of the jump that last at least this long."""
        batch = len(self._running)
        slope = self.model.read_s_per_token * batch / 2
        first = self.step_s - slope
        steps = elapsed_s / first
        if slope > 0:
            steps = (math.sqrt(first * first + 4 * slope * elapsed_s) - first) / (2 * slope)
        return max(1, math.ceil(steps - 1e-9))

    def _jump_s(self, steps: int) -> float:
        grown = len(self._running) * steps * (steps - 1) / 2
        return steps * self.step_s + grown * self.model.read_s_per_token

    def _schedule(self, end_s: float) -> None:
        self._version += 1
        self._clock.at(end_s, partial(self._boundary, self._version))

    def _boundary(self, version: int) -> None:
        if version != self._version:
            return
        self._steps += self._jump
        self.resident_tokens += self._jump * len(self._running)
        finished: list[Turn] = []
        while self._running and self._running[0][0] <= self._steps:
            finished.append(heappop(self._running)[2])
        for turn in finished:
            self.resident_tokens -= turn.memory_tokens
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
            self.estimate.computed((self._clock.now - self._started_s) / (computed + len(self._running)))
        for turn, tokens in self._chunk:
            turn.prefill_left -= tokens
            turn.step_extra_s = 0.0
            if not turn.prefill_left:
                self._prefilling.remove(turn)
                turn.first_token_s = self._clock.now
                self._on_first_token(self, turn)
                if turn.answer_tokens == 1:
                    finished.append(turn)
                else:
                    self._decode(turn, turn.answer_tokens - 1)
        self._chunk = []
        return finished

    def _decode(self, turn: Turn, steps: int) -> None:
        self._joined += 1
        turn.finish_step = self._steps + steps
        self.resident_tokens += turn.memory_tokens - steps
        heappush(self._running, (turn.finish_step, self._joined, turn))

    def _remove(self, turn: Turn) -> bool:
        for entry in self._running:
            if entry[2] is turn:
                self._running.remove(entry)
                heapify(self._running)
                self.resident_tokens -= turn.memory_tokens - self.tokens_left(turn)
                return True
        return False

    def _begin(self) -> None:
        while self._ready and len(self._running) + len(self._prefilling) < MAX_BATCH:
            turn = self._ready.popleft()
            if turn.prefill_left:
                self._prefilling.append(turn)
            else:
                self._decode(turn, turn.finish_step)
        self._started_s = self._clock.now
        self._busy = bool(self._running or self._prefilling)
        if self._prefilling:
            self._begin_chunk()
        elif self._running:
            self._jump = self._running[0][0] - self._steps
            self._schedule(self._started_s + self._jump_s(self._jump))

    def _begin_chunk(self) -> None:
        self._jump = 1
        room = CHUNK_TOKENS
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
        model = self.model
        step_s = self.step_s + len(self._chunk) * model.step_s_per_request
        for turn, tokens in self._chunk:
            position = turn.prompt_end - turn.prefill_left
            step_s += position * model.read_s_per_token + tokens * model.prefill_s_per_token
            step_s += tokens * (position + tokens / 2) * model.attention_s_per_token_pair + turn.step_extra_s
        return step_s
