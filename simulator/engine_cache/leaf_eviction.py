"""The interface of a prefix cache's eviction rule: which leaves of the tree are evicted when blocks are needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(slots=True, eq=False)
class BlockTree:
    """The blocks of one cache; the cache and its eviction rule share it.

    Mutable state: `parents` (every block → the block before it, None for a root; the cache adds, the rule removes) and
    `pins` (blocks that sequences hold → the number of holders; only the cache changes it). A sequence holds a prefix,
    so a pinned block has a pinned parent.
    """

    capacity_blocks: int
    parents: dict[int, int | None] = field(default_factory=dict)
    pins: dict[int, int] = field(default_factory=dict)


class LeafEviction(Protocol):
    """Evicts leaves of one tree, but never pinned blocks, nor a path while it is being inserted."""

    def make_room(self, keys: Sequence[int], held: int, blocks: int) -> list[int]:
        """Record a use of the path `keys`, of which the first `held` are present, and evict `blocks` others for it.

        Returns the evicted keys in order, fewer where no more can be evicted. Called once per insertion, with 0 blocks
        where there is room, and always followed by `add`.
        """

    def add(self, keys: Sequence[int], held: int) -> None:
        """Record that the blocks of the path `keys` after the first `held` were added to the tree."""

    def lock(self, keys: Sequence[int]) -> None:
        """Record that blocks have become pinned."""

    def unlock(self, keys: Sequence[int]) -> None:
        """Record that blocks are no longer pinned, children before parents; they were in use until this moment."""

    def clear(self) -> None:
        """Forget all blocks."""

    def check(self) -> None:
        """Raise AssertionError unless the rule's own state agrees with the tree."""


EvictionRule = Callable[[BlockTree], LeafEviction]
"""Builds the rule of a new cache."""
