"""Order in which blocks leave a tier: the protocol of the rules, and the table of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Protocol

from kvstore.tiers.leaf_lru import LeafLru
from kvstore.tiers.rlt_leaves import RltLeaves


class EvictionOrder(Protocol):
    """The blocks of one tier as trees of prompts; only a leaf, whose children are not in the tier, may leave."""

    def __len__(self) -> int:
        """Return how many blocks are free to leave."""

    def add(self, key: bytes, parent: bytes) -> None:
        """Add a block, which may not leave before `set_evictable`."""

    def remove(self, key: bytes) -> None:
        """Forget a block that left."""

    def touch(self, keys: Sequence[bytes]) -> None:
        """Note a use of blocks, in the order of their prompt; unknown ones are ignored."""

    def set_evictable(self, key: bytes, evictable: bool) -> None:
        """Set whether a block is free to leave: neither in use nor pinned."""

    def is_leaf(self, key: bytes) -> bool:
        """Return whether no block of the tier follows this one."""

    def victim(self) -> bytes | None:
        """Return the block to leave next, still in the tier; None: none may."""

    def check(self) -> None:
        """Raise AssertionError unless the rule's state agrees with itself."""


EVICTIONS: dict[str, Callable[[int, random.Random], EvictionOrder]] = {
    "leaf_lru": lambda _slots, _rng: LeafLru(),
    "rlt": RltLeaves,
}
"""Name → rule of a tier with this many slots, which takes randomness from the generator."""


def eviction_order(name: str, slots: int, rng: random.Random) -> EvictionOrder:
    """Return a new rule of this name; raises ValueError with the known names."""
    build = EVICTIONS.get(name)
    if build is None:
        raise ValueError(f"eviction {name!r} is unknown; known are {', '.join(EVICTIONS)}")
    return build(slots, rng)
