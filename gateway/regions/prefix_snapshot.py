"""The bounded prefix snapshot of a region's engines, which heartbeats carry as deltas: the block keys they used last.

A key identifies its whole prefix, so of a long prompt only some depths are kept: every one up to 16 blocks, and ever
fewer beyond, at the same depths for all prompts, so that a match is accurate to an eighth of its length.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence

import msgspec

SNAPSHOT_KEYS = 2048
"""Keys of a snapshot: 18 KB on the wire."""
_FINE = 16
"""Blocks up to which every depth is kept; 8 to 16 of each doubling beyond."""


class PrefixDelta(msgspec.Struct, frozen=True):
    """Changes of a snapshot since `base`; base 0: the complete snapshot."""

    base: int
    version: int
    added: tuple[int, ...] = ()
    removed: tuple[int, ...] = ()


def kept_depths(blocks: int) -> Iterator[int]:
    """Yield the depths of a prompt of `blocks` blocks that snapshots keep, deepest first."""
    depth = blocks
    while depth > 0:
        yield depth
        step = max(1, 1 << max(0, (depth - 1).bit_length() - _FINE.bit_length() + 1))
        depth = (depth - 1) // step * step


class PrefixSnapshot:
    """A gateway's snapshot of one region that it serves.

    Mutable state: keys by their last use, and when each came and went.
    """

    def __init__(self, limit: int = SNAPSHOT_KEYS) -> None:
        self._limit = limit
        self.version = 1
        self._used: OrderedDict[int, None] = OrderedDict()
        self._added: OrderedDict[int, int] = OrderedDict()
        self._removed: OrderedDict[int, int] = OrderedDict()
        self._oldest_base = 1
        """Versions before this one get no list of removals."""

    def note(self, keys: Sequence[int]) -> None:
        """Note a prompt that an engine got; prefixes that many prompts share are used again by each of them."""
        self.version += 1
        for depth in kept_depths(len(keys)):
            key = keys[depth - 1]
            if key not in self._used:
                self._added[key] = self.version
                self._removed.pop(key, None)
            self._used[key] = None
            self._used.move_to_end(key)
        while len(self._used) > self._limit:
            key, _ = self._used.popitem(last=False)
            del self._added[key]
            self._removed[key] = self.version
        while len(self._removed) > self._limit:
            _, self._oldest_base = self._removed.popitem(last=False)

    def forget(self) -> None:
        """Drop all keys; readers of an earlier version get the whole."""
        self.version += 1
        self._oldest_base = self.version
        for part in (self._used, self._added, self._removed):
            part.clear()

    def since(self, base: int) -> PrefixDelta:
        """Return the delta, or the whole, that a peer with version `base` needs."""
        if not self._oldest_base <= base <= self.version:
            return PrefixDelta(0, self.version, tuple(self._added))
        return PrefixDelta(base, self.version, _newer(self._added, base), _newer(self._removed, base))

    def check(self) -> None:
        """Raise AssertionError unless all parts agree."""
        if self._used.keys() != self._added.keys() or self._used.keys() & self._removed.keys():
            raise AssertionError("a key is both held and removed, or neither")
        if len(self._used) > self._limit or len(self._removed) > self._limit:
            raise AssertionError("the snapshot is over its bounds")


def _newer(versions: OrderedDict[int, int], base: int) -> tuple[int, ...]:
    newer = []
    for key, version in reversed(versions.items()):
        # Keys are added in the order of their versions, so all before it are older.
        if version <= base:
            break
        newer.append(key)
    return tuple(newer)


class HeldPrefixes:
    """A peer's snapshot, assembled from its deltas. Mutable state: version and keys."""

    def __init__(self) -> None:
        self.version = 0
        self.keys: set[int] = set()

    def apply(self, delta: PrefixDelta) -> None:
        """Take a delta; one that is older, or whose base we do not know, changes nothing."""
        if delta.version <= self.version:
            return
        if not delta.base:
            self.keys = set(delta.added)
        elif delta.base <= self.version:
            self.keys.difference_update(delta.removed)
            self.keys.update(delta.added)
        else:
            return
        self.version = delta.version

    def matched_blocks(self, keys: Sequence[int]) -> int:
        """Return how many leading blocks of a prompt the snapshot holds."""
        held = self.keys
        return next((depth for depth in kept_depths(len(keys)) if keys[depth - 1] in held), 0)
