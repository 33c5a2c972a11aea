"""An engine model with a prefix cache."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence

from simulator.engine_cache.prefix_cache import PrefixCache
from simulator.engine_models.engine_events import BlocksRemoved, BlocksStored, EngineEvent
from simulator.engine_models.engine_profile import EngineProfile
from simulator.engine_models.queued_engine import QueuedEngine
from simulator.engine_models.simulated_engine import PromptSequence


class CachedEngine(QueuedEngine[PromptSequence], ABC):
    """An engine that keeps blocks in a prefix cache. Mutable state besides the queue's: the cache."""

    def __init__(self, profile: EngineProfile) -> None:
        super().__init__(profile)
        self._cache = PrefixCache(profile.num_blocks, profile.eviction_rule)

    @property
    def cached_blocks(self) -> int:
        """Number of cached blocks, in use or not."""
        return len(self._cache)

    def held_blocks(self, keys: Sequence[int]) -> int:
        """Return how many leading blocks of `keys` are in the cache."""
        return self._cache.match(keys)

    def receive_blocks(self, keys: Sequence[int], now: float) -> list[EngineEvent]:
        """Add leading blocks from another engine to the cache; return the stored and evicted keys."""
        events: list[EngineEvent] = []
        self._insert("", tuple(keys), now, events)
        return events

    def _insert(self, request_id: str, keys: tuple[int, ...], at_s: float, events: list[EngineEvent]) -> None:
        held = self._cache.match(keys)
        removed = self._cache.insert(keys)
        if removed:
            events.append(BlocksRemoved(at_s, tuple(removed)))
        # Where pinned blocks fill the cache, only a part was inserted.
        if held < len(keys) and (stored := keys[held : self._cache.match(keys)]):
            events.append(BlocksStored(request_id, at_s, held, stored, keys[held - 1] if held else None))
