"""Blocks on their way: prompts sent to a target that will soon hold their blocks.

Placement counts them as hits; otherwise a burst of requests with one prefix would scatter before its first prefill ends
(research on scheduling §7.4). They cannot be transferred: only resident blocks can.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvstore.index.prefix_index import PrefixIndex
from kvstore.index.prefix_match import LONG, PrefixMatch, search_match, walk_match

STEP = 64
"""In prompts of LONG blocks or more, only every STEP-th block and the last one are recorded."""


def coming_keys(keys: Sequence[int], held: int) -> Sequence[int]:
    """Return the keys to record for a prompt whose first `held` blocks are on the target."""
    if len(keys) < LONG or held >= len(keys):
        return keys[held:]
    return _steps(keys, held)


def _steps(keys: Sequence[int], held: int) -> Sequence[int]:
    """Return the last key of each whole step that ends after the first `held` blocks, and the prompt's last key."""
    first = max(STEP - 1, held // STEP * STEP + STEP - 1)
    steps = keys[first::STEP]
    return steps if len(keys) % STEP == 0 else (*steps, keys[-1])


def _blocks(steps: int, length: int) -> int:
    """Return how many blocks the first `steps` steps of a prompt of `length` blocks contain."""
    return min(steps * STEP, length)


class InFlightBlocks:
    """Counts of (block, target) pairs next to a prefix index, matched together with it.

    A request adds only the blocks that its target neither holds nor will soon get, as far as known.

    Mutable state: `_targets_of` (key → bitset) and `_extra` (how many times more than once a pair is counted).
    """

    def __init__(self, resident: PrefixIndex) -> None:
        self._resident = resident
        self._table = resident.table
        self._targets_of: dict[int, int] = {}
        self._extra: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self._targets_of)

    def add(self, target: int, keys: Sequence[int]) -> None:
        """Record that a prompt with `keys` was sent to `target`."""
        bit = 1 << target
        table = self._targets_of
        for key in keys:
            if key not in table:
                table[key] = bit
            elif table[key] & bit:
                pair = (key, target)
                self._extra[pair] = self._extra.get(pair, 0) + 1
            else:
                table[key] |= bit

    def remove(self, target: int, keys: Sequence[int]) -> None:
        """Undo one `add` of the same target and keys."""
        bit = 1 << target
        table = self._targets_of
        extra = self._extra
        for key in keys:
            if extra and (key, target) in extra:
                left = extra.pop((key, target)) - 1
                if left:
                    extra[key, target] = left
                continue
            held = table.get(key, 0)
            if held == bit:
                del table[key]
            elif held & bit:
                table[key] = held ^ bit

    def match(self, keys: Sequence[int], among: int) -> PrefixMatch:
        """Return the leading blocks per target in `among`, resident or on their way."""
        if len(keys) >= LONG:
            return self._match_long(keys, among)
        match = walk_match(keys, among, self._table, self._targets_of)
        tails = self._resident.tails
        return tails.cut(match, keys, self._targets_of) if tails.targets & among else match

    def _match_long(self, keys: Sequence[int], among: int) -> PrefixMatch:
        """Match resident blocks exactly, and blocks on their way at the steps of a long prompt."""
        exact = self._resident.match(keys, among)
        if not self._targets_of:
            return exact
        ours, resident = self._targets_of.get, self._resident.targets_of
        steps = _steps(keys, 0)
        coming = search_match(steps, among, lambda key: resident(key, 0) | ours(key, 0))
        if self._resident.tails.targets & among:
            # A step that is resident is counted by the exact match, as far as the tail is there.
            coming = self._resident.tails.cut_to(coming, steps, self._targets_of)
        groups_by_depth = sorted(
            (*exact.groups, *((_blocks(step, len(keys)), mask) for step, mask in coming.groups)), reverse=True
        )
        # A target counts with the longer of its two matches.
        taken, groups = 0, []
        for blocks, mask in groups_by_depth:
            if mask & ~taken:
                groups.append((blocks, mask & ~taken))
                taken |= mask
        return PrefixMatch(tuple(groups))

    def check(self) -> None:
        """Raise AssertionError unless each extra count belongs to a counted pair."""
        for (key, target), times in self._extra.items():
            if times < 1 or not self._targets_of.get(key, 0) >> target & 1:
                raise AssertionError(
                    f"block {key:#x} counts {times} more on target {target} without being counted there"
                )
        if any(held <= 0 for held in self._targets_of.values()):
            raise AssertionError("a block on its way has no target")
