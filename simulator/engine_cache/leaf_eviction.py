"""The interface of a prefix cache's eviction rule, which selects the leaves of the tree to evict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(slots=True, eq=False)
class BlockTree:
    """The blocks of one cache; the cache and its eviction rule share it.

    Mutable state: `parents` maps each block to the block before it, None for a root; the cache adds blocks, the rule
    removes them. `pins` maps blocks that sequences hold to the number of holders; only the cache changes it. A sequence
    holds a prefix, so a pinned block has a pinned parent.
    """

    capacity_blocks: int
    parents: dict[int, int | None] = field(default_factory=dict)
    pins: dict[int, int] = field(default_factory=dict)


class LeafEviction(Protocol):
    """Evicts leaves of one tree, but never pinned blocks and never the path being inserted."""

    def make_room(self, keys: Sequence[int], held: int, blocks: int) -> list[int]:
        """Record a use of the path `keys`, whose first `held` blocks are present, and evict `blocks` other blocks for
        it.

        Returns the evicted keys in order; there are fewer if no more can be evicted. Called once per insertion, also
        with 0 blocks if there is room, and always followed by `add`.
        """

    def add(self, keys: Sequence[int], held: int) -> None:
        """Record that the blocks of the path `keys` after the first `held` were added to the tree."""

    def lock(self, keys: Sequence[int]) -> None:
        """Record that blocks have become pinned."""

    def unlock(self, keys: Sequence[int]) -> None:
        """Record that blocks are no longer pinned, children before parents. This counts as a use of the blocks."""

    def clear(self) -> None:
        """Remove all blocks."""

    def check(self) -> None:
        """Raise AssertionError unless the rule's state matches the tree."""


EvictionRule = Callable[[BlockTree], LeafEviction]
"""Builds the eviction rule of a new cache."""
