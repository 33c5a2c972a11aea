"""A prefix cache: the blocks of one engine as a tree of chained keys. Only leaves are evicted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from simulator.engine_cache.leaf_eviction import BlockTree, EvictionRule
from simulator.engine_cache.lru_leaves import LruLeaves


class PrefixCache:
    """At most `capacity_blocks` blocks; leaves are evicted by the rule `eviction`, by default leaf-LRU.

    Mutable state: the tree of blocks with their pins, and the eviction rule's state.
    """

    def __init__(self, capacity_blocks: int, eviction: EvictionRule = LruLeaves) -> None:
        if capacity_blocks < 1:
            raise ValueError(f"a cache needs at least 1 block, not {capacity_blocks}")
        self.capacity_blocks = capacity_blocks
        self._tree = BlockTree(capacity_blocks)
        self._parents = self._tree.parents
        self._pins = self._tree.pins
        self._eviction = eviction(self._tree)

    def __len__(self) -> int:
        return len(self._parents)

    def __contains__(self, key: int) -> bool:
        return key in self._parents

    @property
    def pinned_blocks(self) -> int:
        """Number of blocks that running sequences hold."""
        return len(self._pins)

    def match(self, keys: Sequence[int]) -> int:
        """Return the number of leading blocks that are present; this does not count as a use."""
        blocks = self._parents
        for depth, key in enumerate(keys):
            if key not in blocks:
                return depth
        return len(keys)

    def insert(self, keys: Sequence[int]) -> list[int]:
        """Store as many leading blocks of `keys` as fit, and return the keys evicted for them, in order.

        Pinned blocks and the blocks of `keys` itself are never evicted.
        """
        held = self.match(keys)
        over = max(0, len(self._parents) + len(keys) - held - self.capacity_blocks)
        evicted = self._eviction.make_room(keys, held, over)
        if len(evicted) < over:
            keys = keys[: len(keys) - (over - len(evicted))]
        if held < len(keys):
            parents = self._parents
            parent = keys[held - 1] if held else None
            for key in keys[held:]:
                parents[key] = parent
                parent = key
        self._eviction.add(keys, held)
        return evicted

    def pin(self, keys: Sequence[int]) -> int:
        """Pin the present leading blocks of `keys` and return their number; `unpin` must get the same blocks."""
        held = self.match(keys)
        pins = self._pins
        # The pinned blocks are the path's beginning, since a pinned block has a pinned parent.
        pinned = 0
        for key in keys[:held]:
            pins_held = pins.get(key)
            if pins_held is None:
                break
            pins[key] = pins_held + 1
            pinned += 1
        first = keys[pinned:held]
        pins.update(dict.fromkeys(first, 1))
        self._eviction.lock(first)
        return held

    def unpin(self, keys: Sequence[int]) -> None:
        """Remove one pin from each of `keys` and mark them as used. If a pin is missing, raise ValueError and change
        nothing.
        """
        pins = self._pins
        counts = [*map(pins.get, keys)]
        if None in counts:
            raise ValueError(f"block {keys[counts.index(None)]:#x} is not pinned")
        free = []
        for key, count in zip(keys, counts, strict=True):
            if count == 1:
                del pins[key]
                free.append(key)
            elif count is not None:
                pins[key] = count - 1
        # The rule expects children before their parents.
        free.reverse()
        self._eviction.unlock(free)

    def clear(self) -> None:
        """Drop every block, including pinned ones."""
        self._parents.clear()
        self._pins.clear()
        self._eviction.clear()

    def check(self) -> None:
        """Raise AssertionError unless tree, eviction rule, pins, and capacity are consistent."""
        for key, parent in self._parents.items():
            if parent is not None and parent not in self._parents:
                raise AssertionError(f"block {key:#x} lost its parent")
        for key, count in self._pins.items():
            if count < 1 or key not in self._parents:
                raise AssertionError(f"block {key:#x} is pinned by nobody, or gone")
            if (parent := self._parents[key]) is not None and parent not in self._pins:
                raise AssertionError(f"block {parent:#x} is free before its child {key:#x}")
        if len(self._parents) > self.capacity_blocks:
            raise AssertionError(f"{len(self._parents)} blocks are over {self.capacity_blocks}")
        self._eviction.check()


class RecentBlocks:
    """At most `capacity_blocks` blocks; the least recently used ones are evicted first.

    Mutable state: `_order`, the blocks in order of last use. Leaves precede their parents, so that a chain is evicted
    from its tail.
    """

    def __init__(self, capacity_blocks: int) -> None:
        self._capacity = capacity_blocks
        self._order: dict[int, None] = {}

    def __len__(self) -> int:
        return len(self._order)

    def store(self, keys: Sequence[int]) -> tuple[list[int], list[int]]:
        """Store blocks; return the new keys and the evicted keys."""
        order = self._order
        new = [key for key in keys if key not in order]
        # Leaf first, so that a chain is evicted from its tail.
        for key in reversed(keys):
            order.pop(key, None)
            order[key] = None
        evicted = list(order)[: max(0, len(order) - self._capacity)]
        for key in evicted:
            del order[key]
        # A prompt longer than the capacity evicts blocks of its own, which were then never kept.
        return [key for key in new if key in order], [key for key in evicted if key not in new]

    def clear(self) -> None:
        """Drop all blocks."""
        self._order.clear()


class CpuCopies(RecentBlocks):
    """Copies of blocks in CPU memory."""

    def end(self, keys: Sequence[int], first: int) -> int:
        """Return the end of the run of present blocks that starts at position `first`; mark the prompt's blocks as
        used.
        """
        end = first
        while end < len(keys) and keys[end] in self._order:
            end += 1
        self.store([key for key in keys if key in self._order])
        return end


class WindowBlocks(RecentBlocks):
    """Blocks of a sliding window. An engine keeps only those before certain ends of prompts."""

    def __init__(self, capacity_blocks: int, window_blocks: int) -> None:
        """`window_blocks` is the number of blocks before the end of a prefix that a hit on it needs."""
        super().__init__(capacity_blocks)
        self._window_blocks = window_blocks

    def end(self, keys: Sequence[int], most: int) -> int:
        """Return the longest prefix of at most `most` blocks whose last window is present; mark that window as used."""
        for end in range(most, 0, -1):
            window = keys[max(0, end - self._window_blocks) : end]
            if all(key in self._order for key in window):
                self.store(window)
                return end
        return 0

    def keep(self, keys: Sequence[int], first: int, ends: Iterable[int]) -> tuple[list[int], list[int]]:
        """Store the blocks of the windows before `ends`, from position `first`; return new positions and evictions."""
        positions = {position for end in ends for position in range(max(first, end - self._window_blocks), end)}
        new, evicted = self.store([keys[position] for position in sorted(positions)])
        return [position for position in sorted(positions) if keys[position] in new], evicted
