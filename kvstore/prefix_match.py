"""The answer of a prefix index: how deep each target's match goes, grouped by depth."""

from __future__ import annotations

import msgspec


class PrefixMatch(msgspec.Struct, frozen=True, gc=False):
    """Targets by the number of leading blocks they hold, deepest first; targets with none are absent.

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
        """Blocks of the deepest match (0 when nobody holds the prefix)."""
        return self.groups[0][0] if self.groups else 0

    def blocks(self, target: int) -> int:
        """Return the leading blocks that `target` holds."""
        bit = 1 << target
        for depth, targets in self.groups:
            if targets & bit:
                return depth
        return 0


NO_MATCH = PrefixMatch()
