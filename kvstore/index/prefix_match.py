"""Result of a prefix index lookup: the depth of each target's match, grouped by depth."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

# A walk over 8,192 blocks takes 0.7 ms, a search 6 to 70 µs (docs/decisions/0009-long-prompts.md).
LONG = 64
"""Minimum number of blocks at which a prompt is matched by binary search instead of a scan."""


class PrefixMatch(msgspec.Struct, frozen=True, gc=False):
    """Targets by the number of leading blocks they hold, deepest first. Targets without any are absent.

    `groups` holds (blocks, bitset of targets whose match ends exactly there).
    """

    groups: tuple[tuple[int, int], ...] = ()

    @property
    def holders(self) -> int:
        """Bitset of all targets that hold at least the first block."""
        mask = 0
        for _, targets in self.groups:
            mask |= targets
        return mask

    @property
    def longest(self) -> int:
        """Blocks of the deepest match (0 when no target holds the prefix)."""
        return self.groups[0][0] if self.groups else 0

    def blocks(self, target: int) -> int:
        """Return the leading blocks that `target` holds."""
        bit = 1 << target
        for depth, targets in self.groups:
            if targets & bit:
                return depth
        return 0


NO_MATCH = PrefixMatch()


def walk_match(keys: Sequence[int], among: int, resident: Mapping[int, int], coming: Mapping[int, int]) -> PrefixMatch:
    """Return the match of a prompt, block by block. Both tables map a block to the bitset of targets that hold it."""
    running = among
    groups: list[tuple[int, int]] = []
    depth, seen, seen_coming = 0, -1, 0
    holders = resident.get
    for key in keys:
        held = holders(key, 0)
        ours = coming[key] if key in coming else 0  # noqa: SIM401 - most keys are not there, and `in` makes no call
        # Neighbouring blocks mostly share one bitset object (PrefixIndex.store).
        if held is not seen or ours is not seen_coming:
            seen, seen_coming = held, ours
            still = running & (held | ours)
            if still != running:
                if depth:
                    groups.append((depth, running & ~still))
                running = still
                if not still:
                    break
        depth += 1
    if running and depth:
        groups.append((depth, running))
    groups.reverse()
    return PrefixMatch(tuple(groups)) if groups else NO_MATCH


def search_match(keys: Sequence[int], among: int, held: Callable[[int], int]) -> PrefixMatch:
    """Return the match of a long prompt by binary searches, one per depth at which a target's match ends.

    `held` returns the bitset of targets that hold a block. Engines evict children before their parents, so a target
    that holds a block is assumed to hold all before it. If that is briefly wrong for a target (a lost event), blocks
    after the gap can be counted.
    """
    groups: list[tuple[int, int]] = []
    running, depth = among, 0
    while running and depth < len(keys):
        still = running & held(keys[-1])
        # All remaining targets hold the whole prompt.
        if still == running:
            depth = len(keys)
            break
        # The first block, from `depth` on, that a target still in the running lacks.
        low, high = depth, len(keys) - 1
        while low < high:
            middle = (low + high) // 2
            if running & held(keys[middle]) == running:
                low = middle + 1
            else:
                high = middle
        depth = low
        still = running & held(keys[depth])
        if depth:
            groups.append((depth, running & ~still))
        running = still
    if running and depth:
        groups.append((depth, running))
    groups.reverse()
    return PrefixMatch(tuple(groups)) if groups else NO_MATCH
