"""Passes one engine's block changes from its events to the pool's router."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.pools.engines.live_engine import LiveEngine
    from kvstore.events.cache_groups import PartChange
    from kvstore.index.cache_tails import Tail
    from routing.router import Router

Continued = Callable[[int, Sequence[int]], None]
"""Receives (key of a block, keys of the blocks that an engine has stored after it)."""
MAX_MEDIA = 65_536
"""Limit of a pool's media with known lengths. The least recently stored are dropped first."""


class IndexFeed:
    """Passes one engine's block changes to the pool's router."""

    def __init__(
        self,
        router: Router,
        engine: LiveEngine,
        restarted: Callable[[LiveEngine], None],
        media_blocks: OrderedDict[str, int],
        continued: Continued = lambda _parent, _keys: None,
    ) -> None:
        """`media_blocks`: media name → number of its blocks in this pool."""
        self._continued = continued
        self._router = router
        self._media_blocks = media_blocks
        self._engine = engine
        self._restarted = restarted

    def stored(self, keys: Sequence[int], parent: int | None = None) -> None:
        """Add these blocks, which follow the block `parent`. Without salts, their domain would be unknown."""
        if self._engine.salts_seen.missing:
            return
        self._router.blocks_stored(self._engine.entry.engine_id, keys)
        if parent is not None:
            self._continued(parent, keys)

    def removed(self, keys: Sequence[int]) -> None:
        """Remove these blocks."""
        if self._engine.salts_seen.missing:
            return
        self._router.blocks_removed(self._engine.entry.engine_id, keys)

    def tail_declared(self, tail: Tail) -> None:
        """Limit this engine's matches by the tail of its cache groups."""
        self._router.fleet.declare_tail(self._engine.entry.engine_id, tail)

    def tail_changed(self, change: PartChange) -> None:
        """Add or remove blocks of a tail part."""
        if not self._engine.salts_seen.missing:
            self._router.fleet.change_tail(self._engine.entry.engine_id, *change)

    def tier_changed(self, tier: str, stored: bool, keys: Sequence[int]) -> None:
        """Add or remove blocks of a tier below engine memory."""
        if keys and not self._engine.salts_seen.missing:
            self._router.fleet.change_tier(self._engine.entry.engine_id, tier, stored, keys)

    def medium_stored(self, name: str, blocks: int) -> None:
        """Record that the medium of this name spans at least this many blocks."""
        self._media_blocks[name] = max(blocks, self._media_blocks.pop(name, 0))
        if len(self._media_blocks) > MAX_MEDIA:
            self._media_blocks.popitem(last=False)

    def cleared(self) -> None:
        """Remove all blocks."""
        self._router.blocks_cleared(self._engine.entry.engine_id)

    def restarted(self) -> None:
        """Reset for a new engine process."""
        self._restarted(self._engine)
