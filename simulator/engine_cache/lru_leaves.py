"""Leaf-LRU: the least recently used leaf is evicted first, as in SGLang and vLLM (RLT paper §3.2, `L-LRU`).

A use touches blocks from leaf to root, so a parent is always more recently used than its children and a chain is
evicted from its tail. The least recently used block is therefore always a leaf, and one list in order of last use
suffices.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from simulator.engine_cache.leaf_eviction import BlockTree


class LruLeaves:
    """Evicts the least recently used leaf. Mutable state: `_order`, the unpinned blocks, least recently used first."""

    def __init__(self, tree: BlockTree) -> None:
        self._tree = tree
        self._order: OrderedDict[int, None] = OrderedDict()

    def make_room(self, keys: Sequence[int], held: int, blocks: int) -> list[int]:
        """Evict up to `blocks` of the least recently used blocks outside the path."""
        evicted: list[int] = []
        if not blocks:
            # `add` touches the path; while nothing is evicted, the order does not matter yet.
            return evicted
        path = keys[:held]
        # First, so that the path's own blocks are the last to go.
        self._touch(path)
        order, parents, pins = self._order, self._tree.parents, self._tree.pins
        # Pinned blocks are not in the order.
        mine = held if not pins else sum(key not in pins for key in path)
        for _ in range(min(blocks, len(order) - mine)):
            key, _none = order.popitem(last=False)
            del parents[key]
            evicted.append(key)
        return evicted

    def add(self, keys: Sequence[int], held: int) -> None:
        """Make the path's blocks the most recently used."""
        order = self._order
        if held < len(keys):
            # Leaf first: a parent must be younger than its children.
            for key in reversed(keys[held:]):
                order[key] = None
        self._touch(keys[:held])

    def lock(self, keys: Sequence[int]) -> None:
        """Remove pinned blocks from the order."""
        order = self._order
        for key in keys:
            del order[key]

    def unlock(self, keys: Sequence[int]) -> None:
        """Make released blocks the most recently used."""
        order = self._order
        for key in keys:
            order[key] = None

    def clear(self) -> None:
        """Remove all blocks from the order."""
        self._order.clear()

    def check(self) -> None:
        """Raise AssertionError unless every block is pinned or in the order, and parents follow their children."""
        pins, parents = self._tree.pins, self._tree.parents
        if set(self._order) | set(pins) != set(parents) or set(self._order) & set(pins):
            raise AssertionError("a block is neither pinned nor in the order of use, or both")
        age = {key: position for position, key in enumerate(self._order)}
        for key, parent in parents.items():
            if parent in age and (key not in age or age[parent] < age[key]):
                raise AssertionError(f"block {parent:#x} would be evicted before its child {key:#x}")

    def _touch(self, keys: Sequence[int]) -> None:
        """Make present blocks the most recently used, from leaf to root; pinned blocks are not in the order."""
        move, pins = self._order.move_to_end, self._tree.pins
        if not pins:
            for key in reversed(keys):
                move(key)
            return
        for key in reversed(keys):
            if key not in pins:
                move(key)
