"""A leaf-LRU prefix cache: the blocks one engine holds, as a tree of chained keys.

Only leaves can be evicted, the longest unused first, and a use touches leaf to root, so a parent is
always younger than its children and a chain goes from its tail, as vLLM evicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush


class _Node:
    """One block: its key, its place in the tree, when it was last used and how many sequences hold it."""

    __slots__ = ("children", "key", "parent", "pins", "used")

    def __init__(self, key: int, parent: _Node | None) -> None:
        self.key = key
        self.parent = parent
        self.children = 0
        self.pins = 0
        self.used = 0


class PrefixCache:
    """Blocks of at most `capacity_blocks`, evicted leaf by leaf in order of last use.

    Mutable state: `_nodes` (all blocks), `_uses` (a counter that orders uses) and `_leaf_heap`, which
    holds (used, key) of every evictable block and possibly outdated entries beside them.
    """

    def __init__(self, capacity_blocks: int) -> None:
        if capacity_blocks < 1:
            raise ValueError(f"a cache needs at least 1 block, not {capacity_blocks}")
        self.capacity_blocks = capacity_blocks
        self._nodes: dict[int, _Node] = {}
        self._leaf_heap: list[tuple[int, int]] = []
        self._uses = 0
        self._pinned = 0

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, key: int) -> bool:
        return key in self._nodes

    @property
    def pinned_blocks(self) -> int:
        """Blocks that running sequences hold."""
        return self._pinned

    def match(self, keys: Sequence[int]) -> int:
        """Return the number of leading blocks held; touches nothing."""
        nodes = self._nodes
        for depth, key in enumerate(keys):
            if key not in nodes:
                return depth
        return len(keys)

    def insert(self, keys: Sequence[int]) -> list[int]:
        """Hold as many leading blocks of `keys` as fit and return the keys evicted for them, in order.

        Pinned blocks and the blocks of `keys` itself are never evicted.
        """
        held = self.match(keys)
        self._touch(keys[:held])
        path = set(keys[:held])
        evicted: list[int] = []
        parent = self._nodes[keys[held - 1]] if held else None
        for key in keys[held:]:
            if len(self._nodes) >= self.capacity_blocks and not self._evict_one(path, evicted):
                break
            parent = self._add(key, parent)
            path.add(key)
            held += 1
        self._touch(keys[:held])
        return evicted

    def pin(self, keys: Sequence[int]) -> int:
        """Protect the leading blocks held of `keys` and return their number (to be unpinned with the same)."""
        held = self.match(keys)
        for key in keys[:held]:
            node = self._nodes[key]
            self._pinned += not node.pins
            node.pins += 1
        return held

    def unpin(self, keys: Sequence[int]) -> None:
        """Release one pin on each of `keys` and touch them; raises ValueError where no pin stands."""
        for key in keys:
            node = self._nodes.get(key)
            if node is None or not node.pins:
                raise ValueError(f"block {key:#x} is not pinned")
            node.pins -= 1
            self._pinned -= not node.pins
        self._touch(keys)

    def clear(self) -> None:
        """Drop every block, pinned ones too."""
        self._nodes.clear()
        self._leaf_heap.clear()
        self._pinned = 0

    def check(self) -> None:
        """Raise AssertionError unless tree, uses, leaves, pins and capacity agree."""
        children: dict[int, int] = {}
        for node in self._nodes.values():
            parent = node.parent
            if parent is None:
                continue
            if self._nodes.get(parent.key) is not parent:
                raise AssertionError(f"block {node.key:#x} lost its parent")
            if parent.used < node.used:
                raise AssertionError(f"block {parent.key:#x} is older than its child {node.key:#x}")
            children[parent.key] = children.get(parent.key, 0) + 1
        listed = set(self._leaf_heap)
        for key, node in self._nodes.items():
            if node.children != children.get(key, 0):
                raise AssertionError(f"block {key:#x} counts {node.children} children, has {children.get(key, 0)}")
            if _evictable(node) and (node.used, key) not in listed:
                raise AssertionError(f"leaf {key:#x} could never be evicted")
        if self._pinned != sum(1 for node in self._nodes.values() if node.pins):
            raise AssertionError(f"{self._pinned} pinned blocks are counted wrongly")
        if len(self._nodes) > self.capacity_blocks:
            raise AssertionError(f"{len(self._nodes)} blocks are over {self.capacity_blocks}")

    def _add(self, key: int, parent: _Node | None) -> _Node:
        node = _Node(key, parent)
        if parent is not None:
            parent.children += 1
        self._nodes[key] = node
        return node

    def _evict_one(self, path: set[int], evicted: list[int]) -> bool:
        """Evict the oldest leaf outside `path`; returns False where there is none."""
        kept: list[tuple[int, int]] = []
        victim: _Node | None = None
        while self._leaf_heap and victim is None:
            entry = heappop(self._leaf_heap)
            node = self._nodes.get(entry[1])
            if node is None or node.used != entry[0] or not _evictable(node):
                continue
            if node.key in path:
                kept.append(entry)
            else:
                victim = node
        for entry in kept:
            heappush(self._leaf_heap, entry)
        if victim is None:
            return False
        del self._nodes[victim.key]
        evicted.append(victim.key)
        if victim.parent is not None:
            victim.parent.children -= 1
            self._list_leaf(victim.parent)
        return True

    def _touch(self, keys: Sequence[int]) -> None:
        for key in reversed(keys):
            self._uses += 1
            self._nodes[key].used = self._uses
        if keys:
            for key in keys:
                self._list_leaf(self._nodes[key])

    def _list_leaf(self, node: _Node) -> None:
        if not _evictable(node):
            return
        heappush(self._leaf_heap, (node.used, node.key))
        if len(self._leaf_heap) > 2 * self.capacity_blocks + 64:
            self._leaf_heap = [(node.used, key) for key, node in self._nodes.items() if _evictable(node)]
            heapify(self._leaf_heap)


def _evictable(node: _Node) -> bool:
    return not node.children and not node.pins
