"""Leaf-LRU: evict the least recently used block without held successors (RLT paper §3.2, `L-LRU`)."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from kvstore.tiers.block_trees import BlockTrees


class LeafLru:
    """Eviction by leaf-LRU.

    Mutable state: `_trees`; `_used`, block → the number of its last use; `_free`, the blocks that can be evicted;
    `_leaves`, a heap of (last use, block) of the leaves among them, with outdated entries.
    """

    def __init__(self) -> None:
        self._trees = BlockTrees()
        self._used: dict[bytes, int] = {}
        self._free: set[bytes] = set()
        self._leaves: list[tuple[int, bytes]] = []
        self._uses = 0

    def __len__(self) -> int:
        return len(self._free)

    def add(self, key: bytes, parent: bytes) -> None:
        """Add a block, which counts as a use."""
        self._trees.add(key, parent)
        self._uses += 1
        self._used[key] = self._uses

    def remove(self, key: bytes) -> None:
        """Forget a block. Its parent can become a leaf."""
        self._free.discard(key)
        del self._used[key]
        self._list(self._trees.remove(key))

    def touch(self, keys: Sequence[bytes]) -> None:
        """Mark the blocks as most recently used, the first of the prompt last."""
        # The prompt's beginning becomes the most recent, since more prompts share it.
        for key in reversed(keys):
            if key in self._used:
                self._uses += 1
                self._used[key] = self._uses
                self._list(key)

    def set_evictable(self, key: bytes, evictable: bool) -> None:
        """Set whether a block can be evicted."""
        if not evictable:
            self._free.discard(key)
        elif key not in self._free:
            self._free.add(key)
            self._list(key)

    def is_leaf(self, key: bytes) -> bool:
        """Return whether the block has no successor in the tier."""
        return self._trees.is_leaf(key)

    def victim(self) -> bytes | None:
        """Return the least recently used leaf."""
        leaves = self._leaves
        # A heap cannot remove from its middle, so that outdated entries stay until they come to its top.
        while leaves and not self._holds(leaves[0]):
            heapq.heappop(leaves)
        return leaves[0][1] if leaves else None

    def check(self) -> None:
        """Raise AssertionError unless every evictable leaf is listed under its last use."""
        self._trees.check()
        listed = {key for entry in self._leaves if self._holds(entry) for key in entry[1:]}
        if listed != {key for key in self._free if self._trees.is_leaf(key)}:
            raise AssertionError("a leaf is not listed")
        if self._used.keys() != self._trees.parents.keys() or not self._free <= self._used.keys():
            raise AssertionError("a block that left is remembered")

    def _list(self, key: bytes) -> None:
        if key in self._free and self._trees.is_leaf(key):
            heapq.heappush(self._leaves, (self._used[key], key))
            # Outdated entries are dropped in bulk, so that the heap stays proportional to the blocks.
            if len(self._leaves) > 4 * len(self._used) + 64:
                self._leaves = [entry for entry in set(self._leaves) if self._holds(entry)]
                heapq.heapify(self._leaves)

    def _holds(self, entry: tuple[int, bytes]) -> bool:
        used, key = entry
        return key in self._free and self._used[key] == used and self._trees.is_leaf(key)
