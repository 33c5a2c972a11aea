"""RLT eviction: evict a random leaf that was not used in the current phase (RLT paper §4.1, Algorithm 1).

A used block is marked. When more blocks are marked than the capacity, a new phase begins and only the current block
keeps its mark. A full cache evicts an unmarked leaf, each with equal probability. No order of arrivals can anticipate
the choice, so misses stay within about 2·H(B − L + 2) of the optimum's (Theorem 6), where leaf-LRU may miss B − L + 1
times as often (Theorem 4).

Two cases the paper leaves open. The path being inserted is never evicted, even if a phase begins in its middle and
clears its marks. If no unmarked leaf can be evicted (leaves are pinned, or an unmarked block has marked blocks below
it), a new phase begins at once, as in the classical marking algorithm.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import islice

from simulator.engine_cache.leaf_eviction import BlockTree
from simulator.engine_cache.leaf_set import LeafSet


class SimulatedRltLeaves:
    """Evicts random unmarked leaves.

    Mutable state: `_leaves` (leaves that can be evicted), `_children` (inner blocks → number of children), `_marked_in`
    (block → the phase of its last mark), `_phase`, `_marks` (number of marks in this phase), and `_spared` (the last
    present block of the path being inserted).
    """

    def __init__(self, tree: BlockTree, rng: random.Random) -> None:
        self._tree = tree
        self._rng = rng
        self._leaves = LeafSet()
        self._children: dict[int, int] = {}
        self._marked_in: dict[int, int] = {}
        self._phase = 0
        self._marks = 0
        self._spared: int | None = None

    def make_room(self, keys: Sequence[int], held: int, blocks: int) -> list[int]:
        """Mark the path block by block, and evict one leaf for each of its last `blocks` (lines 6 to 16)."""
        self._spared = keys[held - 1] if held else None
        if self._spared is not None:
            # The path's only possible leaf: a phase that begins below would clear its mark and evict it.
            self._leaves.discard(self._spared)
        fitting = len(keys) - blocks
        self._mark(keys[:fitting])
        evicted: list[int] = []
        for key in keys[fitting:]:
            self._mark((key,))
            victim = self._evict_one(key)
            if victim is None:
                # Without room the block is not loaded, and a block that is absent has no mark.
                del self._marked_in[key]
                self._marks -= 1
                break
            evicted.append(victim)
        return evicted

    def add(self, keys: Sequence[int], held: int) -> None:
        """Add the path's blocks after its first `held`; the last one can be a leaf."""
        self._spared = None
        if not keys:
            return
        children = self._children
        if held < len(keys):
            if held:
                parent = keys[held - 1]
                children[parent] = children.get(parent, 0) + 1
            for key in keys[held:-1]:
                children[key] = 1
        self._list_leaf(keys[-1])

    def use(self, keys: Sequence[int]) -> None:
        """Mark blocks in order, including leaves that can be evicted."""
        for key in keys:
            # One by one: a mark may begin a phase, which unmarks every leaf.
            self._mark((key,))
            if self._leaves.discard(key):
                self._leaves.add(key, marked=True)

    def evict(self, blocks: int) -> list[int]:
        """Evict this many leaves, or fewer if no more can be evicted; return them in order."""
        evicted = []
        for _ in range(blocks):
            victim = self._evict_one(None)
            if victim is None:
                break
            evicted.append(victim)
        return evicted

    def lock(self, keys: Sequence[int]) -> None:
        """Remove pinned leaves from the leaves that can be evicted (Corollary 7)."""
        for key in keys:
            self._leaves.discard(key)

    def unlock(self, keys: Sequence[int]) -> None:
        """Mark released blocks, and list the leaves among them as evictable."""
        self.use(keys)
        for key in keys:
            self._list_leaf(key)

    def clear(self) -> None:
        """Remove all blocks and begin a new phase."""
        self._leaves.clear()
        self._children.clear()
        self._marked_in.clear()
        self._begin_phase()

    def check(self) -> None:
        """Raise AssertionError unless leaves, children, and marks match the tree."""
        self._leaves.check()
        parents, pins = self._tree.parents, self._tree.pins
        children: dict[int, int] = {}
        for parent in parents.values():
            if parent is not None:
                children[parent] = children.get(parent, 0) + 1
        if children != self._children:
            raise AssertionError("the children are counted wrongly")
        if set(self._leaves) != {key for key in parents if key not in children and key not in pins}:
            raise AssertionError("a leaf could never be evicted, or an inner or pinned block could")
        marked = {key for key, phase in self._marked_in.items() if phase == self._phase}
        if len(marked) != self._marks or self._marks > self._tree.capacity_blocks:
            raise AssertionError(f"{self._marks} marks are counted, {len(marked)} are set")
        if not set(self._marked_in) <= set(parents):
            raise AssertionError("a block that is gone keeps its mark")
        if set(islice(self._leaves, self._leaves.unmarked)) & marked:
            raise AssertionError("a marked leaf could be drawn")

    def _mark(self, keys: Sequence[int]) -> None:
        """Mark blocks that are not listed as leaves, in order (lines 7 to 9)."""
        marked_in, phase = self._marked_in, self._phase
        for key in keys:
            if marked_in.get(key) == phase:
                continue
            if self._marks == self._tree.capacity_blocks:
                phase = self._begin_phase()
            marked_in[key] = phase
            self._marks += 1

    def _evict_one(self, wanted: int | None) -> int | None:
        """Evict a random unmarked leaf in order to load `wanted`; return None if there is no leaf."""
        leaves, tree = self._leaves, self._tree
        # The paper leaves this case open; as in the classical marking algorithm, a new phase begins.
        if not leaves.unmarked:
            if not len(leaves):
                return None
            self._begin_phase()
            if wanted is not None:
                self._marked_in[wanted] = self._phase
                self._marks = 1
        victim = leaves.take(self._rng.random())
        self._marked_in.pop(victim, None)
        parent = tree.parents.pop(victim)
        if parent is not None:
            left = self._children[parent] - 1
            if left:
                self._children[parent] = left
            else:
                del self._children[parent]
                if parent != self._spared and parent not in tree.pins:
                    leaves.add(parent, marked=self._marked_in.get(parent) == self._phase)
        return victim

    def _begin_phase(self) -> int:
        # Marks carry the number of their phase, so none has to be cleared.
        self._phase += 1
        self._marks = 0
        self._leaves.unmark_all()
        return self._phase

    def _list_leaf(self, key: int) -> None:
        """List a block as evictable if it has no children and no sequence holds it."""
        if key not in self._children and key not in self._tree.pins and key not in self._leaves:
            self._leaves.add(key, marked=self._marked_in.get(key) == self._phase)
