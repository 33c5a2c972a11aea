"""The leaves that can be evicted, unmarked ones first; indexed, so that a random choice takes O(1)."""

from __future__ import annotations

from collections.abc import Iterator


class LeafSet:
    """Leaves in two parts, unmarked and marked. Every operation takes constant time, `unmark_all` included.

    Mutable state: `_leaves` (the first `unmarked` of them are unmarked) and `_index` (leaf → its index).
    """

    __slots__ = ("_index", "_leaves", "unmarked")

    def __init__(self) -> None:
        self._leaves: list[int] = []
        self._index: dict[int, int] = {}
        self.unmarked = 0

    def __len__(self) -> int:
        return len(self._leaves)

    def __contains__(self, key: int) -> bool:
        return key in self._index

    def __iter__(self) -> Iterator[int]:
        return iter(self._leaves)

    def add(self, key: int, *, marked: bool) -> None:
        """Add a leaf, which must not be in the set."""
        leaves, index = self._leaves, self._index
        end = len(leaves)
        leaves.append(key)
        index[key] = end
        if marked:
            return
        first_marked = self.unmarked
        # Unmarked leaves come first, so the first marked one makes room for the new one.
        if first_marked < end:
            other = leaves[first_marked]
            leaves[end] = other
            index[other] = end
            leaves[first_marked] = key
            index[key] = first_marked
        self.unmarked = first_marked + 1

    def discard(self, key: int) -> bool:
        """Remove a leaf; return False if it is not in the set."""
        hole = self._index.pop(key, None)
        if hole is None:
            return False
        self._close(hole)
        return True

    def take(self, share: float) -> int:
        """Remove and return the unmarked leaf at position `share` (0 to below 1) of all unmarked leaves; one must
        exist.
        """
        hole = int(share * self.unmarked)
        key = self._leaves[hole]
        del self._index[key]
        self._close(hole)
        return key

    def unmark_all(self) -> None:
        """Unmark every leaf."""
        self.unmarked = len(self._leaves)

    def clear(self) -> None:
        """Remove all leaves."""
        self._leaves.clear()
        self._index.clear()
        self.unmarked = 0

    def check(self) -> None:
        """Raise AssertionError unless every leaf is at its recorded index."""
        if {key: index for index, key in enumerate(self._leaves)} != self._index:
            raise AssertionError("a leaf is not in its place")
        if not 0 <= self.unmarked <= len(self._leaves):
            raise AssertionError(f"{self.unmarked} of {len(self._leaves)} leaves cannot be unmarked")

    def _close(self, hole: int) -> None:
        """Fill the gap of a removed leaf: if it was unmarked, with the last unmarked leaf; then with the last leaf."""
        leaves, index = self._leaves, self._index
        if hole < self.unmarked:
            self.unmarked = last_unmarked = self.unmarked - 1
            if hole != last_unmarked:
                other = leaves[last_unmarked]
                leaves[hole] = other
                index[other] = hole
                hole = last_unmarked
        last = leaves.pop()
        if hole < len(leaves):
            leaves[hole] = last
            index[last] = hole
