"""Parent-child relations of a tier's blocks, which determine its leaves."""

from __future__ import annotations


class BlockTrees:
    """Mutable state: `parents` (held block → the one before it) and `_children` (block → how many held ones follow it).

    A block is linked only to one that was there before it, and only if no block follows it yet.
    """

    def __init__(self) -> None:
        self.parents: dict[bytes, bytes] = {}
        self._children: dict[bytes, int] = {}

    def add(self, key: bytes, parent: bytes) -> bytes:
        """Add a block that is not held; returns the parent it is linked to, empty where there is none."""
        # Parents come from clients: linked at will, blocks could form a cycle, of which none would ever be a leaf.
        if parent not in self.parents or key in self._children:
            parent = b""
        self.parents[key] = parent
        if parent:
            self._children[parent] = self._children.get(parent, 0) + 1
        return parent

    def remove(self, key: bytes) -> bytes:
        """Forget a block and return its parent."""
        parent = self.parents.pop(key)
        if parent:
            left = self._children[parent] - 1
            if left:
                self._children[parent] = left
            else:
                del self._children[parent]
        return parent

    def is_leaf(self, key: bytes) -> bool:
        """Return whether no held block follows this one."""
        return key not in self._children

    def check(self) -> None:
        """Raise AssertionError unless children are counted as the parents say."""
        counted: dict[bytes, int] = {}
        for parent in self.parents.values():
            if parent:
                counted[parent] = counted.get(parent, 0) + 1
        if counted != self._children:
            raise AssertionError("the children are counted wrongly")
