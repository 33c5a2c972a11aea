"""The interface of every engine model, under a virtual clock or in real time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import msgspec

from simulator.engine_models.engine_events import EngineEvent


class PromptSequence(msgspec.Struct, frozen=True, gc=False):
    """One request as the engine sees it: chained keys of its prompt blocks, and lengths in tokens."""

    request_id: str
    keys: tuple[int, ...]
    prompt_tokens: int
    output_tokens: int = 1
    priority: int = 0
    """The lowest runs first, as in vLLM."""
    loaded_blocks: int = 0
    """Leading blocks that were loaded for it. The engine keeps them until the prefill starts, whatever else it computes
    meanwhile: vLLM too loads into blocks that are the request's own.
    """
    setup_s: float = 0.0
    """Additional time of its prefill for a LoRA adapter that must be loaded first."""


class SimulatedEngine(Protocol):
    """A clock-free engine: it receives arrivals, states when it is due, and reports its events."""

    def submit(self, sequence: PromptSequence, now: float) -> None:
        """Queue a sequence that arrives at `now` (seconds); raises ValueError on one that can never run."""

    def next_event_time(self) -> float | None:
        """Return when `advance` has something to do; None while the engine is empty."""

    def advance(self, now: float) -> list[EngineEvent]:
        """Advance time to `now` and return the events, in order, with exact times."""

    def abort(self, request_id: str, now: float) -> bool:
        """Remove a request at once, in any state; returns False if it is absent (harmless)."""

    @property
    def running(self) -> int:
        """Sequences that prefill or decode."""

    @property
    def waiting(self) -> int:
        """Sequences that have not started."""

    @property
    def cached_blocks(self) -> int:
        """Blocks in the cache, in use or not."""

    @property
    def kv_usage(self) -> float:
        """Share of the blocks that running sequences hold, 0..1."""

    def check(self) -> None:
        """Raise AssertionError unless all parts agree with each other."""


@runtime_checkable
class SizedEngine(SimulatedEngine, Protocol):
    """An engine whose running requests share one memory."""

    @property
    def kv_tokens(self) -> int:
        """Tokens that fit into the memory."""


@runtime_checkable
class TransferringEngine(Protocol):
    """An engine that can also send its blocks to another and receive blocks (Mooncake §5)."""

    def held_blocks(self, keys: Sequence[int]) -> int:
        """Return how many leading blocks of `keys` the cache holds at this moment."""

    def receive_blocks(self, keys: Sequence[int], now: float) -> list[EngineEvent]:
        """Put leading blocks from another engine into the cache; return what was stored and evicted."""
