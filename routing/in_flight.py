"""Blocks that are on their way: prompts given to a target whose blocks it will hold soon.

Placement counts them as hits, else a burst of one prefix would scatter before its first prefill ends
(research on scheduling §7.4). Nothing may be transferred from them: only resident blocks exist.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvstore.prefix_index import PrefixIndex
from kvstore.prefix_match import NO_MATCH, PrefixMatch


class InFlightBlocks:
    """Counted (block, target) pairs beside a prefix index, matched together with it.

    A request adds only the blocks that its target is not known to hold or to get anyway.

    Mutable state: `_targets_of` (key → bitset) and `_extra` (how often a pair stands beyond once).
    """

    def __init__(self, resident: PrefixIndex) -> None:
        self._resident = resident
        self._targets_of: dict[int, int] = {}
        self._extra: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self._targets_of)

    def add(self, target: int, keys: Sequence[int]) -> None:
        """Note that `target` was given a prompt with `keys`."""
        bit = 1 << target
        table = self._targets_of
        for key in keys:
            held = table.get(key, 0)
            if held & bit:
                pair = (key, target)
                self._extra[pair] = self._extra.get(pair, 0) + 1
            else:
                table[key] = held | bit

    def remove(self, target: int, keys: Sequence[int]) -> None:
        """Take back one `add` of the same target and keys."""
        bit = 1 << target
        table = self._targets_of
        extra = self._extra
        for key in keys:
            if extra and (key, target) in extra:
                left = extra.pop((key, target)) - 1
                if left:
                    extra[key, target] = left
                continue
            held = table.get(key, 0) & ~bit
            if held:
                table[key] = held
            else:
                table.pop(key, None)

    def match(self, keys: Sequence[int], among: int) -> PrefixMatch:
        """Return the leading blocks per target in `among`, resident or on their way."""
        coming = self._targets_of
        if coming.keys().isdisjoint(keys):
            return self._resident.match(keys, among)
        return self._match_both(keys, among)

    def _match_both(self, keys: Sequence[int], among: int) -> PrefixMatch:
        coming = self._targets_of.get
        resident = self._resident.targets_of
        running = among
        groups: list[tuple[int, int]] = []
        depth = 0
        for key in keys:
            still = running & (resident(key, 0) | coming(key, 0))
            if still != running:
                if depth and running:
                    groups.append((depth, running & ~still))
                running = still
                if not still:
                    break
            depth += 1
        if running and depth:
            groups.append((depth, running))
        groups.reverse()
        return PrefixMatch(tuple(groups)) if groups else NO_MATCH

    def check(self) -> None:
        """Raise AssertionError unless each extra count belongs to a standing pair."""
        for (key, target), times in self._extra.items():
            if times < 1 or not self._targets_of.get(key, 0) >> target & 1:
                raise AssertionError(f"block {key:#x} counts {times} more on target {target} without standing there")
        if any(held <= 0 for held in self._targets_of.values()):
            raise AssertionError("a block on its way has no target")
