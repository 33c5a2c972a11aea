"""The prefix index: find the targets that hold each block of a prompt, for all targets in one pass.

One dict maps each block key to a bitset of targets (a Python int). A match scans the prompt's keys with a running AND,
so its cost grows with the blocks of the prompt and not with the fleet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice

from kvstore.index.cache_tails import CacheTails
from kvstore.index.lower_tiers import LowerTiers
from kvstore.index.prefix_match import LONG, PrefixMatch, search_match, walk_match

ENTRY_BYTES = 150
"""Bytes per entry: dict slot at its usual load, key object, bitset object (measured, 64 targets)."""

_BATCH_SHARE = 128
"""One in this many entries is evicted at once when the budget is exceeded."""

_NOTHING: Mapping[int, int] = {}


class PrefixIndex:
    """Block key → bitset of targets, within a byte budget. The least recently touched keys are evicted first.

    Mutable state: `_targets_of` (in order of last touch), the tails of targets with hybrid models, and the lower tiers
    of targets, which matches do not count.
    """

    def __init__(self, max_bytes: int = 256 << 20) -> None:
        if max_bytes < ENTRY_BYTES:
            raise ValueError(f"an index needs at least {ENTRY_BYTES} bytes, not {max_bytes}")
        self.max_bytes = max_bytes
        self.evicted = 0
        """Number of keys evicted for the budget since the start."""
        self._max_keys = max_bytes // ENTRY_BYTES
        self._targets_of: dict[int, int] = {}
        self.tails, self.tiers = CacheTails(), LowerTiers()
        self.table: Mapping[int, int] = self._targets_of
        """Block key → bitset of the targets that hold it. Read-only; always the same object."""
        self.targets_of: Callable[[int, int], int] = self._targets_of.get
        """Returns the bitset of targets that hold a block, or the given default."""

    def __len__(self) -> int:
        return len(self._targets_of)

    @property
    def bytes_used(self) -> int:
        """Estimated bytes of all entries."""
        return (len(self._targets_of) + len(self.tails) + len(self.tiers)) * ENTRY_BYTES

    def store(self, target: int, keys: Sequence[int]) -> None:
        """Record that `target` holds `keys` (in prompt order). Touches them leaf first, so parents stay younger."""
        bit = 1 << target
        table = self._targets_of
        pop = table.pop
        before, after = 0, bit
        for key in reversed(keys):
            held = pop(key, 0)
            # Neighbours that had one bitset object share one again: less memory, and a scan detects it by identity.
            if held is not before:
                before, after = held, held | bit
            table[key] = after
        self._evict()

    def remove(self, target: int, keys: Iterable[int]) -> None:
        """Record that `target` no longer holds `keys`. Unknown keys are ignored."""
        keep = ~(1 << target)
        table = self._targets_of
        if self.tails.targets >> target & 1:
            keys = list(keys)
            self.tails.remove(target, keys)
        for key in keys:
            targets = table.get(key)
            if targets is None:
                continue
            left = targets & keep
            if left:
                table[key] = left
            else:
                del table[key]

    def change_tail(self, target: int, part: str, stored: bool, keys: Sequence[int]) -> None:
        """Record which of `keys` the groups of `part` stored or removed.

        Keys that are not in the index are not stored.
        """
        if stored:
            self.tails.store(target, part, [key for key in keys if key in self._targets_of])
            self._evict()
        else:
            self.tails.remove(target, keys, part)

    def change_tier(self, target: int, tier: str, stored: bool, keys: Sequence[int]) -> None:
        """Record blocks that the target's tier stored or removed."""
        if stored:
            self.tiers.store(target, tier, keys)
            self._evict()
        else:
            self.tiers.remove(target, tier, keys)

    def drop(self, keys: Iterable[int]) -> None:
        """Forget blocks on every target. Unknown keys are ignored."""
        keys = list(keys)
        self.tails.drop(keys)
        for key in keys:
            self._targets_of.pop(key, None)

    def clear(self, target: int) -> None:
        """Forget all blocks of `target`, in one sweep over the index."""
        bit = 1 << target
        held = [key for key, targets in self._targets_of.items() if targets & bit]
        self.remove(target, held)
        if self.tails.targets >> target & 1:
            self.tails.clear(target)
        self.tiers.clear(target)

    def touch(self, keys: Sequence[int]) -> None:
        """Mark known `keys` as most recently used, leaf first."""
        table = self._targets_of
        for key in reversed(keys):
            targets = table.pop(key, 0)
            if targets:
                table[key] = targets

    def match(self, keys: Sequence[int], among: int) -> PrefixMatch:
        """Return how many leading blocks each target in the bitset `among` holds."""
        if len(keys) >= LONG:
            lookup = self._targets_of.get
            match = search_match(keys, among, lambda key: lookup(key, 0))
        else:
            match = walk_match(keys, among, self._targets_of, _NOTHING)
        return self.tails.cut(match, keys) if self.tails.targets & among else match

    def check(self) -> None:
        """Raise AssertionError if an entry has no holder or the budget is exceeded."""
        for key, targets in self._targets_of.items():
            if targets <= 0:
                raise AssertionError(f"key {key:#x} is kept without a holder")
        self.tails.check()
        self.tiers.check()
        if self.bytes_used > self.max_bytes:
            raise AssertionError(f"{self.bytes_used} bytes are over the budget of {self.max_bytes}")

    def _evict(self) -> None:
        table = self._targets_of
        over = len(table) + len(self.tails) + len(self.tiers) - self._max_keys
        if over <= 0:
            return
        # Both share the budget, and the larger part gives way.
        if len(self.tiers) > len(table):
            self.tiers.evict(max(over, self._max_keys // _BATCH_SHARE))
            return
        # In batches: the oldest entry of a dict is behind all those that were deleted before it.
        oldest = list(islice(table, max(over, self._max_keys // _BATCH_SHARE)))
        for key in oldest:
            del table[key]
        self.tails.drop(oldest)
        self.evicted += len(oldest)
