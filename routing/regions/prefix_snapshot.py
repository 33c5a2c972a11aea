"""The bounded prefix snapshot of a region's engines: recently used block keys, sent as deltas in heartbeats.

A key identifies its complete prefix, so only some depths of a long prompt are kept: all up to 16 blocks, and
increasingly fewer beyond, at the same depths for all prompts. A match is therefore accurate to an eighth of its length.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Iterator, Sequence

import msgspec

SNAPSHOT_KEYS = 2048
"""Maximum keys of a snapshot: 18 KB on the wire."""
_FINE = 16
"""Number of blocks up to which every depth is kept. Beyond it, 8 to 16 depths of each doubling are kept."""


class PrefixDelta(msgspec.Struct, frozen=True):
    """Changes of a snapshot since `base`. Base 0: the complete snapshot."""

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

    Mutable: keys by last use, and when each was added or removed.
    """

    def __init__(self, limit: int = SNAPSHOT_KEYS) -> None:
        self._limit = limit
        self.version = 1
        self._used: OrderedDict[int, None] = OrderedDict()
        self._added: OrderedDict[int, int] = OrderedDict()
        self._removed: OrderedDict[int, int] = OrderedDict()
        self._oldest_base = 1
        """Earlier versions get no list of removals."""

    def note(self, keys: Sequence[int]) -> None:
        """Record a prompt that an engine received. This also renews prefixes shared with earlier prompts."""
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
        """Drop all keys. Readers of an earlier version get the complete snapshot."""
        self.version += 1
        self._oldest_base = self.version
        for part in (self._used, self._added, self._removed):
            part.clear()

    def matched_blocks(self, keys: Sequence[int]) -> int:
        """Return the number of a prompt's leading blocks in the snapshot."""
        return _matched(keys, self._used)

    def since(self, base: int) -> PrefixDelta:
        """Return the delta for a peer with version `base`, or the complete snapshot."""
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
    """A peer's snapshot, assembled from its deltas. Mutable: version and keys."""

    def __init__(self) -> None:
        self.version = 0
        self.keys: set[int] = set()

    def apply(self, delta: PrefixDelta) -> None:
        """Apply a delta. A delta that is older, or whose base is unknown, changes nothing."""
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
        """Return the number of a prompt's leading blocks in the snapshot."""
        return _matched(keys, self.keys)


def _matched(keys: Sequence[int], held: Container[int]) -> int:
    return next((depth for depth in kept_depths(len(keys)) if keys[depth - 1] in held), 0)
