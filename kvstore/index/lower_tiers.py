"""Blocks that engines keep below their compute memory: in CPU memory, on disk, or in an external store.

An engine extends a prefix in its memory with the following blocks from a tier, and loads them before the prefill.
Blocks of a faster tier are used first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from kvstore.index.prefix_match import PrefixMatch

CPU, DISK, EXTERNAL = TIERS = ("cpu", "disk", "external")
"""Fastest first. External: a store on another machine."""


class LowerTiers:
    """One table per tier from block key to the bitset of targets that hold it there, oldest entries first.

    Mutable state: the tables, and `targets`.
    """

    def __init__(self) -> None:
        self.targets = 0
        """Bitset of targets that have stored blocks below their memory. 0 in fleets without lower tiers."""
        self._tables: dict[str, dict[int, int]] = {tier: {} for tier in TIERS}

    def __len__(self) -> int:
        return sum(map(len, self._tables.values()))

    def store(self, target: int, tier: str, keys: Iterable[int]) -> None:
        """Record that the target's tier holds `keys`."""
        table, bit = self._tables[tier], 1 << target
        self.targets |= bit
        for key in keys:
            # Popped, so that the entry becomes the youngest.
            table[key] = table.pop(key, 0) | bit

    def remove(self, target: int, tier: str, keys: Iterable[int]) -> None:
        """Record that the target's tier no longer holds `keys`. Unknown keys are ignored."""
        table, bit = self._tables[tier], 1 << target
        for key in keys:
            held = table.get(key, 0)
            if held == bit:
                del table[key]
            elif held & bit:
                table[key] = held ^ bit

    def clear(self, target: int) -> None:
        """Forget all tiers of a target."""
        if self.targets >> target & 1:
            self.targets ^= 1 << target
            for tier, table in self._tables.items():
                self.remove(target, tier, [key for key, held in table.items() if held >> target & 1])

    def evict(self, entries: int) -> None:
        """Forget the oldest entries, first in the largest table."""
        for table in sorted(self._tables.values(), key=len, reverse=True):
            oldest = list(islice(table, entries))
            for key in oldest:
                del table[key]
            entries -= len(oldest)

    def reach(self, match: PrefixMatch, keys: Sequence[int], among: int) -> list[tuple[tuple[int, ...], int]]:
        """Return (ends, bitset of targets): the number of leading blocks in memory, then including each tier of TIERS.

        `match` contains the blocks in memory. A block in memory after a missing one is useless.
        """
        groups: list[tuple[tuple[int, ...], int]] = [((blocks,), mask) for blocks, mask in match.groups]
        groups.append(((0,), among & ~match.holders))
        tables: list[dict[int, int]] = []
        for tier in TIERS:
            table = self._tables[tier]
            if table:
                # Cumulative: behind a block of a slower tier, an engine goes on with those of the faster ones too.
                tables.append(table)
            groups = [item for ends, mask in groups for item in _continued(ends, mask, keys, tables if table else ())]
        return groups

    def check(self) -> None:
        """Raise AssertionError unless every entry has holders with recorded tiers."""
        if any(held <= 0 or held & ~self.targets for table in self._tables.values() for held in table.values()):
            raise AssertionError("a block of a tier is kept without a holder")


def _continued(
    ends: tuple[int, ...], running: int, keys: Sequence[int], tables: Sequence[dict[int, int]]
) -> list[tuple[tuple[int, ...], int]]:
    """Return the targets of one group, split by how far these tables extend their match."""
    ended, end = [], ends[-1]
    while tables and running and end < len(keys):
        held = 0
        for table in tables:
            held |= table.get(keys[end], 0)
        if stopped := running & ~held:
            ended.append(((*ends, end), stopped))
            running ^= stopped
        end += 1
    if running:
        ended.append(((*ends, end if tables else ends[-1]), running))
    return ended
