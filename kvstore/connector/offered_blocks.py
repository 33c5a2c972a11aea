"""Blocks recently offered to the engine's node, so that a prefix is stored once and not once per request."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

MAX_BLOCKS = 1 << 18


class OfferedBlocks:
    """Blocks that need no new offer.

    Mutable state: `_until`, chain hash → when it is offered again, in the order of that time.

    The engine's chain hash covers adapter and salt, so it identifies a block within the engine.
    """

    def __init__(self, again_s: float, max_blocks: int = MAX_BLOCKS) -> None:
        self._again_s, self._max_blocks = again_s, max_blocks
        self._until: OrderedDict[bytes, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._until)

    def has(self, chain_hash: bytes, now: float) -> bool:
        """Return whether a block needs no new offer."""
        return self._until.get(chain_hash, now) > now

    def add(self, chain_hashes: Iterable[bytes], now: float) -> None:
        """Record blocks that were offered or loaded from a node."""
        for chain_hash_ in chain_hashes:
            # Removed first: an assignment alone would keep the old position in the order of times.
            self._until.pop(chain_hash_, None)
            self._until[chain_hash_] = now + self._again_s
        while len(self._until) > self._max_blocks:
            self._until.popitem(last=False)

    def drop(self, chain_hashes: Iterable[bytes]) -> None:
        """Forget blocks that the node rejected."""
        for chain_hash_ in chain_hashes:
            self._until.pop(chain_hash_, None)
