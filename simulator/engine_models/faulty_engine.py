"""Wraps a healthy simulated engine and adds faults: hang, crawl, lie, stop, pause, or wrong metrics.

A fault changes the speed of the engine's own clock (stopped or slow), or its reported metrics. This wrapper keeps both
counters: reported output and actual output.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from simulator.engine_models.engine_events import EngineEvent, Finished, FirstTokenEvent, Token
from simulator.engine_models.fifo_engine import EngineModel
from simulator.engine_models.simulated_engine import PromptSequence

FaultKind = Literal["none", "hang", "crawl", "lie", "stop", "pause", "never_starts", "garbage", "frozen", "frozen_hang"]
"""frozen: the engine serves, but its metrics keep their values from the fault's start. frozen_hang: it also hangs."""

CRAWL_FACTOR = 6.0
"""Factor by which all operations of a crawling engine take longer."""
_LIED_TOKENS_PER_S = 400.0


class ClaimedEngineMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """The values that a probe reads from the engine."""

    reachable: bool = True
    readable: bool = True
    paused: str = ""
    running: int = 0
    waiting: int = 0
    kv_usage: float = 0.0
    prompt_tokens_total: float = 0.0
    generated_tokens_total: float = 0.0


class FaultyEngine:
    """A healthy engine with a settable fault. Mutable: the fault and its start, the engine's own time, counters, and
    the requests that a paused engine holds back.

    `first_tokens_total` counts first tokens, `pieces_total` counts later tokens and ends.
    """

    def __init__(self, engine: EngineModel) -> None:
        self.profile = engine.profile
        self.first_tokens_total = 0
        self.pieces_total = 0
        self._engine = engine
        self._fault: FaultKind = "none"
        self._rate = 1.0
        self._since_s = 0.0
        self._own_s = 0.0
        self._last_s = 0.0
        self._prompt_tokens = 0
        self._lengths: dict[str, int] = {}
        self._held: list[PromptSequence] = []
        self._frozen: ClaimedEngineMetrics | None = None

    def set_fault(self, fault: FaultKind, now: float) -> None:
        """Set the engine's fault; "none" removes it."""
        # Before the rate changes: the time until now passed at the old one.
        self._own_s, self._since_s = self._own(now), now
        # An engine whose metrics are already frozen keeps reporting the same ones.
        self._frozen = (self._frozen or self._metrics(now)) if fault in ("frozen", "frozen_hang") else None
        self._fault = fault
        self._rate = {"hang": 0.0, "lie": 0.0, "stop": 0.0, "frozen_hang": 0.0, "crawl": 1.0 / CRAWL_FACTOR}.get(
            fault, 1.0
        )
        if not self._holds_back:
            held, self._held = self._held, []
            for sequence in held:
                self._engine.submit(sequence, self._own(now))

    def metrics(self, now: float) -> ClaimedEngineMetrics:
        """Return the values that a probe reads now."""
        return self._frozen or self._metrics(now)

    def _metrics(self, now: float) -> ClaimedEngineMetrics:
        if self._fault == "stop":
            return ClaimedEngineMetrics(reachable=False)
        if self._fault == "garbage":
            return ClaimedEngineMetrics(running=-1, kv_usage=float("nan"), prompt_tokens_total=float("inf"))
        lied = _LIED_TOKENS_PER_S * (now - self._since_s) if self._fault == "lie" else 0.0
        return ClaimedEngineMetrics(
            paused="paused" if self._fault == "pause" else "",
            running=self._engine.running,
            waiting=self._engine.waiting + len(self._held),
            kv_usage=self._engine.kv_usage,
            prompt_tokens_total=self._prompt_tokens + lied,
            generated_tokens_total=self.first_tokens_total + self.pieces_total + lied,
        )

    @property
    def running(self) -> int:
        """Number of sequences that prefill or decode."""
        return self._engine.running

    @property
    def waiting(self) -> int:
        """Number of sequences that have not started."""
        return self._engine.waiting + len(self._held)

    @property
    def cached_blocks(self) -> int:
        """Number of cached blocks, in use or not."""
        return self._engine.cached_blocks

    @property
    def kv_usage(self) -> float:
        """Share of the memory that running sequences hold, 0..1."""
        return self._engine.kv_usage

    @property
    def kv_tokens(self) -> int:
        """Tokens of running sequences that fit into memory."""
        return self._engine.kv_tokens

    def submit(self, sequence: PromptSequence, now: float) -> None:
        """Queue a sequence that arrives at `now`; raise ValueError if it can never run."""
        self._lengths[sequence.request_id] = sequence.prompt_tokens
        if self._holds_back:
            self._held.append(sequence)
        else:
            self._engine.submit(sequence, self._own(now))

    def next_event_time(self) -> float | None:
        """Return the next time at which `advance` has work to do; None if the engine does nothing by itself."""
        due = self._engine.next_event_time()
        if due is None or self._rate == 0.0:
            return None
        return max(self._outer(due), self._since_s)

    def advance(self, now: float) -> list[EngineEvent]:
        """Advance time to `now` and return the events in order, without single later tokens."""
        own = self._own(now)
        due = self._engine.next_event_time()
        if due is not None and self._rate and self._outer(due) <= now:
            own = self._last_s = max(own, due)  # rounding must not skip a moment that is due
        events: list[EngineEvent] = []
        for event in self._engine.advance(own):
            if isinstance(event, Token):
                self.pieces_total += 1
                continue
            if isinstance(event, FirstTokenEvent):
                self.first_tokens_total += 1
                self._prompt_tokens += self._lengths[event.request_id]
            elif isinstance(event, Finished):
                self.pieces_total += 1
                self._lengths.pop(event.request_id, None)
            if isinstance(event, FirstTokenEvent | Finished) and self._shifted:
                # Rounding must not put an event into the future.
                event = msgspec.structs.replace(event, at_s=min(self._outer(event.at_s), now))  # noqa: PLW2901
            events.append(event)
        return events

    def abort(self, request_id: str, now: float) -> bool:
        """Remove a request at once, in any state; return False if it is absent."""
        self._lengths.pop(request_id, None)
        kept = [item for item in self._held if item.request_id != request_id]
        removed = len(kept) < len(self._held)
        self._held = kept
        return removed or self._engine.abort(request_id, self._own(now))

    def check(self) -> None:
        """Raise AssertionError unless the engine is consistent and the length of every request in it is known."""
        self._engine.check()
        if self._engine.running + self.waiting > len(self._lengths):
            raise AssertionError("a request stands here that nobody counted")

    @property
    def _holds_back(self) -> bool:
        return self._fault in ("pause", "never_starts")

    @property
    def _shifted(self) -> bool:
        # An engine that was never at fault keeps the caller's clock, without rounding.
        return self._rate != 1.0 or self._own_s != self._since_s

    def _own(self, now: float) -> float:
        """Convert clock time to the engine's own time; rounding never moves it back."""
        own = self._own_s + (now - self._since_s) * self._rate if self._shifted else now
        self._last_s = max(self._last_s, own)
        return self._last_s

    def _outer(self, own: float) -> float:
        """Convert the engine's own time to clock time; valid only while the engine's time advances."""
        return self._since_s + (own - self._own_s) / self._rate if self._shifted else own
