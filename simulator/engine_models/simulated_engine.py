"""The interface of every engine model, under a virtual clock or in real time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import msgspec

from simulator.engine_models.engine_events import EngineEvent


class PromptSequence(msgspec.Struct, frozen=True, gc=False):
    """One request from the engine's view: chained keys of its prompt blocks, and lengths in tokens."""

    request_id: str
    keys: tuple[int, ...]
    prompt_tokens: int
    output_tokens: int = 1
    priority: int = 0
    """The lowest value runs first, as in vLLM."""
    loaded_blocks: int = 0
    """Number of leading blocks that were loaded for the request. The engine keeps them until the prefill starts,
    because vLLM too loads into blocks that belong to the request.
    """
    setup_s: float = 0.0
    """Additional prefill seconds to load a LoRA adapter first."""
    answer_keys: tuple[int, ...] = ()
    """Keys of the full blocks that the answer fills, if later prompts continue it."""


class SimulatedEngine(Protocol):
    """A clock-free engine: it accepts arrivals, states when it is due, and reports its events."""

    def submit(self, sequence: PromptSequence, now: float) -> None:
        """Queue a sequence that arrives at `now` (seconds); raise ValueError if it can never run."""

    def next_event_time(self) -> float | None:
        """Return the next time at which `advance` has work to do; None if the engine is empty."""

    def advance(self, now: float) -> list[EngineEvent]:
        """Advance time to `now` and return the events in order, with exact times."""

    def abort(self, request_id: str, now: float) -> bool:
        """Remove a request at once, in any state; return False if it is absent."""

    @property
    def running(self) -> int:
        """Number of sequences that prefill or decode."""

    @property
    def waiting(self) -> int:
        """Number of sequences that have not started."""

    @property
    def cached_blocks(self) -> int:
        """Number of cached blocks, in use or not."""

    @property
    def kv_usage(self) -> float:
        """Share of the blocks that running sequences hold, 0..1."""

    def check(self) -> None:
        """Raise AssertionError unless all parts are consistent."""


@runtime_checkable
class SizedEngine(SimulatedEngine, Protocol):
    """An engine whose running requests share a single memory."""

    @property
    def kv_tokens(self) -> int:
        """Number of tokens that fit into memory."""


@runtime_checkable
class TransferringEngine(Protocol):
    """An engine that can also send blocks to other engines and receive blocks (Mooncake §5)."""

    def held_blocks(self, keys: Sequence[int]) -> int:
        """Return how many leading blocks of `keys` are in the cache now."""

    def receive_blocks(self, keys: Sequence[int], now: float) -> list[EngineEvent]:
        """Add leading blocks from another engine to the cache; return the stored and evicted keys."""
