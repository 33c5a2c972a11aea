"""Parent-child relations of a tier's blocks, which determine its leaves."""

from __future__ import annotations


class BlockTrees:
    """Trees of held blocks.

    Mutable state: `parents` (held block → preceding block) and `_children` (block → number of held successors).

    A block is linked only to a block that was held before it, and only while it has no successor.
    """

    def __init__(self) -> None:
        self.parents: dict[bytes, bytes] = {}
        self._children: dict[bytes, int] = {}

    def add(self, key: bytes, parent: bytes) -> bytes:
        """Add a new block. Return the parent that it is linked to, empty without one."""
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
        """Return whether the block has no held successor."""
        return key not in self._children

    def check(self) -> None:
        """Raise AssertionError if the numbers of children disagree with the parents."""
        counted: dict[bytes, int] = {}
        for parent in self.parents.values():
            if parent:
                counted[parent] = counted.get(parent, 0) + 1
        if counted != self._children:
            raise AssertionError("the children are counted wrongly")
