"""RLT: evict a random leaf among those not used in this phase (RLT paper §4.1, Algorithm 1).

A used block is marked. When more blocks than the tier has slots would be marked, a new phase begins and all marks are
cleared. If every evictable leaf is marked, a new phase begins at once, as in the classical marking algorithm.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from kvstore.tiers.block_trees import BlockTrees


class _DrawSet:
    """A set from which a random member can be drawn in constant time."""

    def __init__(self) -> None:
        self.members: list[bytes] = []
        self._index: dict[bytes, int] = {}

    def __contains__(self, key: bytes) -> bool:
        return key in self._index

    def add(self, key: bytes) -> None:
        if key not in self._index:
            self._index[key] = len(self.members)
            self.members.append(key)

    def discard(self, key: bytes) -> None:
        index = self._index.pop(key, None)
        if index is None:
            return
        # The last member takes its index, so that removal takes constant time.
        last = self.members.pop()
        if last != key:
            self.members[index] = last
            self._index[last] = index


class RltLeaves:
    """Eviction by RLT.

    Mutable state: `_trees`; `_free`, the blocks that can be evicted; `_unmarked` and `_marked`, the leaves among them;
    `_marks`, the blocks used in this phase.
    """

    def __init__(self, slots: int, rng: random.Random) -> None:
        self._slots, self._rng = slots, rng
        self._trees = BlockTrees()
        self._free: set[bytes] = set()
        self._unmarked, self._marked = _DrawSet(), _DrawSet()
        self._marks: set[bytes] = set()

    def __len__(self) -> int:
        return len(self._free)

    def add(self, key: bytes, parent: bytes) -> None:
        """Add a block, which counts as its first use. Its parent is no longer a leaf."""
        self._unlist(self._trees.add(key, parent))
        self._mark(key)

    def remove(self, key: bytes) -> None:
        """Forget a block. Its parent can become a leaf."""
        self._unlist(key)
        self._free.discard(key)
        self._marks.discard(key)
        self._list(self._trees.remove(key))

    def touch(self, keys: Sequence[bytes]) -> None:
        """Mark those of the blocks that are held."""
        for key in keys:
            if key in self._trees.parents:
                self._mark(key)

    def set_evictable(self, key: bytes, evictable: bool) -> None:
        """Set whether a block can be evicted."""
        if evictable:
            self._free.add(key)
            self._list(key)
        else:
            self._free.discard(key)
            self._unlist(key)

    def is_leaf(self, key: bytes) -> bool:
        """Return whether the block has no successor in the tier."""
        return self._trees.is_leaf(key)

    def victim(self) -> bytes | None:
        """Return a random unmarked leaf, with equal probability."""
        if not self._unmarked.members:
            if not self._marked.members:
                return None
            self._begin_phase()
        return self._unmarked.members[int(self._rng.random() * len(self._unmarked.members))]

    def check(self) -> None:
        """Raise AssertionError unless exactly the evictable leaves are listed, each by its mark."""
        self._trees.check()
        leaves = {key for key in self._free if self._trees.is_leaf(key)}
        unmarked, marked = set(self._unmarked.members), set(self._marked.members)
        if unmarked | marked != leaves or unmarked & self._marks or not marked <= self._marks:
            raise AssertionError("a leaf is not listed, or listed wrongly")
        if len(self._marks) > self._slots:
            raise AssertionError(f"{len(self._marks)} marks are more than {self._slots} slots")

    def _mark(self, key: bytes) -> None:
        if key in self._marks:
            return
        if len(self._marks) >= self._slots:
            self._begin_phase()
        self._marks.add(key)
        if key in self._unmarked:
            self._unmarked.discard(key)
            self._marked.add(key)

    def _begin_phase(self) -> None:
        self._marks.clear()
        # A list, because a set of bytes has another order in each process, and draws would differ.
        for key in self._marked.members:
            self._unmarked.add(key)
        self._marked = _DrawSet()

    def _list(self, key: bytes) -> None:
        if key in self._free and self._trees.is_leaf(key):
            (self._marked if key in self._marks else self._unmarked).add(key)

    def _unlist(self, key: bytes) -> None:
        self._unmarked.discard(key)
        self._marked.discard(key)
