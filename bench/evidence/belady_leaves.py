"""OPT: evict the leaf whose next use is furthest away (RLT paper §3.2), given all paths in advance.

The next use of a block is never later than that of the blocks below it, so the block that is needed last is always a
leaf. It works only offline, as a bound for the rules that a live cache can use.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from simulator.engine_cache.leaf_eviction import BlockTree

_NEVER = 1 << 62


class BeladyLeaves:
    """The cached blocks by their next use.

    Mutable: `_at` (the next path to insert), `_needed` (block → the path that uses it next), `_children` (inner blocks
    → number of children), and `_farthest`, a heap of (−next use, key) of every evictable leaf, with possibly outdated
    entries.
    """

    def __init__(self, tree: BlockTree, paths: Sequence[Sequence[int]]) -> None:
        self._tree = tree
        self._uses = next_uses(paths)
        self._at = 0
        self._needed: dict[int, int] = {}
        self._children: dict[int, int] = {}
        self._farthest: list[tuple[int, int]] = []

    def make_room(self, keys: Sequence[int], held: int, blocks: int) -> list[int]:
        """Evict up to `blocks` of the leaves that are needed last. Raises ValueError for an unexpected path."""
        if self._at == len(self._uses) or len(self._uses[self._at]) != len(keys):
            raise ValueError(f"insertion {self._at} is not the one that was foretold")
        self._needed.update(zip(keys, self._uses[self._at], strict=True))
        self._at += 1
        # The new blocks are about to become children of this one.
        spared = keys[held - 1] if held else None
        evicted: list[int] = []
        while len(evicted) < blocks and self._farthest:
            needed, key = heappop(self._farthest)
            # An entry is outdated when the block was used, got a child, was pinned or was evicted since.
            if key == spared or not self._evictable(key) or self._needed[key] != -needed:
                continue
            evicted.append(key)
            self._drop(key, spared)
        # Blocks that found no room are not inserted.
        for key in keys[len(keys) - blocks + len(evicted) :]:
            del self._needed[key]
        return evicted

    def add(self, keys: Sequence[int], held: int) -> None:
        """Insert the path's blocks after the first `held` ones."""
        if not keys:
            return
        if held < len(keys):
            if held:
                self._children[keys[held - 1]] = self._children.get(keys[held - 1], 0) + 1
            for key in keys[held:-1]:
                self._children[key] = 1
        self._list_leaf(keys[-1])

    def lock(self, keys: Sequence[int]) -> None:
        """Do nothing: pinned leaves are skipped when their turn comes."""

    def unlock(self, keys: Sequence[int]) -> None:
        """List the leaves among released blocks."""
        for key in keys:
            self._list_leaf(key)

    def clear(self) -> None:
        """Forget all blocks but keep the future paths."""
        self._needed.clear()
        self._children.clear()
        self._farthest.clear()

    def check(self) -> None:
        """Raise AssertionError unless every leaf is listed with its next use and child counts are right."""
        parents = self._tree.parents
        children: dict[int, int] = {}
        for parent in parents.values():
            if parent is not None:
                children[parent] = children.get(parent, 0) + 1
        if children != self._children or set(self._needed) != set(parents):
            raise AssertionError("the tree is not the cache's")
        listed = set(self._farthest)
        for key, parent in parents.items():
            if self._evictable(key) and (-self._needed[key], key) not in listed:
                raise AssertionError(f"leaf {key:#x} could never be evicted")
            if parent is not None and self._needed[parent] > self._needed[key]:
                raise AssertionError(f"block {parent:#x} is needed after its child {key:#x}")

    def _evictable(self, key: int) -> bool:
        tree = self._tree
        return key in tree.parents and key not in self._children and key not in tree.pins

    def _drop(self, key: int, spared: int | None) -> None:
        del self._needed[key]
        parent = self._tree.parents.pop(key)
        if parent is None:
            return
        left = self._children[parent] - 1
        if left:
            self._children[parent] = left
            return
        del self._children[parent]
        # A block without children has become a leaf itself.
        if parent != spared:
            self._list_leaf(parent)

    def _list_leaf(self, key: int) -> None:
        if self._evictable(key):
            heappush(self._farthest, (-self._needed[key], key))


def next_uses(paths: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return for each path and block the number of the next path that contains it, _NEVER if none does."""
    following: dict[int, int] = {}
    uses: list[list[int]] = []
    for number in range(len(paths) - 1, -1, -1):
        uses.append([following.get(key, _NEVER) for key in paths[number]])
        following.update(dict.fromkeys(paths[number], number))
    uses.reverse()
    return uses
