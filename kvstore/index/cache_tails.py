"""Cut a match to a prefix that all cache groups of a hybrid model can serve.

Full attention needs all blocks of a prefix, which a match counts. In addition, a sliding window needs the blocks of the
last window before the prefix's end, and Mamba the state at that end: the tail. The prompt's keys form the chain of its
blocks, so no links between blocks are stored: the cut scans back from the end of a match, as the engine's coordinator
does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from kvstore.index.prefix_match import PrefixMatch

FULL, WINDOW, STATE = "full", "window", "state"
"""Parts of a prompt that cache groups keep."""

_NOTHING: Mapping[int, int] = {}


class Tail(NamedTuple):
    """An engine's requirement at the end of a prefix, in addition to its full-attention blocks."""

    window_blocks: int = 0
    """Required consecutive blocks up to the end, or all blocks of a shorter prefix."""
    states: bool = False
    """Whether a recurrent state at exactly the end is required."""


NO_TAIL = Tail()


class CacheTails:
    """Tails of targets, and one table per part from block key to the bitset of targets whose groups all hold it.

    Mutable state: `targets`, `_targets_of` and `_tables`.
    """

    def __init__(self) -> None:
        self.targets = 0
        """Bitset of targets with a tail. 0 for fleets without hybrid models, whose matches are never cut."""
        self._targets_of: dict[Tail, int] = {}
        self._tables: dict[str, dict[int, int]] = {WINDOW: {}, STATE: {}}

    def __len__(self) -> int:
        return sum(map(len, self._tables.values()))

    def declare(self, target: int, tail: Tail) -> None:
        """Cut the matches of `target` to prefixes that satisfy `tail`."""
        bit = 1 << target
        if self._targets_of.get(tail, 0) & bit:
            return
        self._targets_of = {key: left for key, held in self._targets_of.items() if (left := held & ~bit)}
        if tail != NO_TAIL:
            self._targets_of[tail] = self._targets_of.get(tail, 0) | bit
        # A target has one tail, so that the bitsets are disjoint and their sum is their union.
        self.targets = sum(self._targets_of.values())

    def of(self, target: int) -> Tail:
        """Return the tail of `target`."""
        return next((tail for tail, held in self._targets_of.items() if held >> target & 1), NO_TAIL)

    def store(self, target: int, part: str, keys: Iterable[int]) -> None:
        """Record that the groups of `part` hold `keys`."""
        table, bit = self._tables[part], 1 << target
        for key in keys:
            table[key] = table.get(key, 0) | bit

    def remove(self, target: int, keys: Iterable[int], *parts: str) -> None:
        """Record that a group of this part (or of all parts) no longer holds `keys`. Unknown keys are ignored."""
        keep = ~(1 << target)
        for part in parts or self._tables:
            table = self._tables[part]
            for key in keys:
                left = table.pop(key, 0) & keep
                if left:
                    table[key] = left

    def drop(self, keys: Sequence[int]) -> None:
        """Forget blocks on every target."""
        for table in self._tables.values():
            if table:
                for key in keys:
                    table.pop(key, None)

    def clear(self, target: int) -> None:
        """Forget the blocks and the tail of `target`."""
        self.declare(target, NO_TAIL)
        for part, table in self._tables.items():
            self.remove(target, [key for key, held in table.items() if held >> target & 1], part)

    def cut(self, match: PrefixMatch, keys: Sequence[int], coming: Mapping[int, int] = _NOTHING) -> PrefixMatch:
        """Return the match cut to the longest prefix that each target's tail allows.

        Blocks in `coming` satisfy any tail.
        """
        window, states, ours = self._tables[WINDOW].get, self._tables[STATE].get, coming.get
        depths = _of(match, ~self.targets)
        for tail, owners in self._targets_of.items():
            _cut(
                _of(match, owners),
                keys,
                tail,
                lambda key: window(key, 0) | ours(key, 0),
                lambda key: states(key, 0) | ours(key, 0),
                depths,
            )
        return PrefixMatch(tuple(sorted(depths.items(), reverse=True)))

    def cut_to(self, match: PrefixMatch, keys: Sequence[int], ends: Mapping[int, int]) -> PrefixMatch:
        """Return the match with the prefixes of targets with a tail cut back to a block that they hold in `ends`."""
        lookup, depths = ends.get, _of(match, ~self.targets)
        _cut(_of(match, self.targets), keys, Tail(states=True), lambda key: 0, lambda key: lookup(key, 0), depths)
        return PrefixMatch(tuple(sorted(depths.items(), reverse=True)))

    def check(self) -> None:
        """Raise AssertionError unless every entry has a holder and each target has one tail."""
        if any(held <= 0 for table in self._tables.values() for held in table.values()):
            raise AssertionError("a block of a tail is kept without a holder")
        if sum(self._targets_of.values()) != self.targets:
            raise AssertionError("a target has two tails, or none that is known")


def _of(match: PrefixMatch, targets: int) -> dict[int, int]:
    return {depth: left for depth, mask in match.groups if (left := mask & targets)}


def _cut(
    waiting: dict[int, int],
    keys: Sequence[int],
    tail: Tail,
    window: Callable[[int], int],
    states: Callable[[int], int],
    depths: dict[int, int],
) -> None:
    """Add to `depths` the depth that each waiting target's tail allows, omitting targets without one."""
    # Downward: a target that is not served at one depth waits at a smaller one.
    for depth in range(max(waiting, default=0), 0, -1):
        running = waiting.pop(depth, 0)
        if running and tail.states:
            lacking = running & ~states(keys[depth - 1])
            waiting[depth - 1] = waiting.get(depth - 1, 0) | lacking
            running ^= lacking
        for position in range(depth - 1, max(depth - tail.window_blocks, 0) - 1, -1):
            if not running:
                break
            lacking = running & ~window(keys[position])
            if lacking:
                # No window that contains this block is whole, so the next candidate ends before it.
                waiting[position] = waiting.get(position, 0) | lacking
                running ^= lacking
        if running:
            depths[depth] = depths.get(depth, 0) | running
