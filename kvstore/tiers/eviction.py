"""Order in which blocks are evicted from a tier: the protocol of eviction rules, and their table."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Protocol

from kvstore.tiers.leaf_lru import LeafLru
from kvstore.tiers.rlt_leaves import RltLeaves


class EvictionOrder(Protocol):
    """The blocks of one tier as trees of prompts. Only a leaf, without children in the tier, can be evicted."""

    def __len__(self) -> int:
        """Return how many blocks can be evicted."""

    def add(self, key: bytes, parent: bytes) -> None:
        """Add a block, which cannot be evicted before `set_evictable`."""

    def remove(self, key: bytes) -> None:
        """Forget a removed block."""

    def touch(self, keys: Sequence[bytes]) -> None:
        """Record a use of blocks in prompt order. Unknown blocks are ignored."""

    def set_evictable(self, key: bytes, evictable: bool) -> None:
        """Set whether a block can be evicted: it is neither in use nor pinned."""

    def is_leaf(self, key: bytes) -> bool:
        """Return whether the block has no successor in the tier."""

    def victim(self) -> bytes | None:
        """Return the block to evict next, without removing it. None if no block can be evicted."""

    def check(self) -> None:
        """Raise AssertionError if the rule's state is inconsistent."""


EVICTIONS: dict[str, Callable[[int, random.Random], EvictionOrder]] = {
    "leaf_lru": lambda _slots, _rng: LeafLru(),
    "rlt": RltLeaves,
}
"""Name → rule for a tier with this many slots and a random generator."""


def eviction_order(name: str, slots: int, rng: random.Random) -> EvictionOrder:
    """Return a new rule with this name. Raises ValueError with the known names."""
    build = EVICTIONS.get(name)
    if build is None:
        raise ValueError(f"eviction {name!r} is unknown; known are {', '.join(EVICTIONS)}")
    return build(slots, rng)
