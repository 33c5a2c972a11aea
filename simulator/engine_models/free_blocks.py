"""Full blocks that no sequence holds, and the order in which they are overwritten when memory is needed.

By age, as in vLLM V1: the block that has been free longest is overwritten first. A sequence releases its blocks from
the tail, so a parent always outlives its children. By marks (RLT): this needs the tree of keys and a record of every
use.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from simulator.engine_cache.leaf_eviction import BlockTree
from simulator.engine_cache.rlt_leaves import SimulatedRltLeaves
from simulator.engine_models.engine_profile import EngineProfile


@dataclass(slots=True, eq=False)
class Block:
    """A full block: its key and its number of holders."""

    key: int
    holders: int = 1


class FreeBlocks(Protocol):
    """Blocks with content but without a holder, in the order in which they are overwritten."""

    keeps_twins: bool
    """Whether a free block is kept although another block has the same key."""

    def __len__(self) -> int: ...

    def __contains__(self, block: Block) -> bool: ...

    def named(self, key: int, parent: int | None) -> None:
        """Record that a held block is the first with its key."""

    def used(self, keys: Sequence[int]) -> None:
        """Record that a sequence uses these blocks, in order from the root."""

    def put(self, block: Block) -> None:
        """Add a block that its last holder has released."""

    def hold(self, block: Block) -> None:
        """Remove a free block that is held again."""

    def take(self, count: int) -> list[Block]:
        """Remove and return this many blocks in order; they must be available."""

    def check(self, blocks: dict[int, list[Block]]) -> None:
        """Raise AssertionError unless these are the free ones among `blocks`, which are grouped by key."""


class FreeByAge:
    """Overwrites the block that has been free longest. Mutable state: `_order`."""

    # As in vLLM, where two blocks may have one key.
    keeps_twins = True

    def __init__(self) -> None:
        self._order: OrderedDict[Block, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._order)

    def __contains__(self, block: Block) -> bool:
        return block in self._order

    def named(self, key: int, parent: int | None) -> None:
        """Do nothing: age does not depend on the tree."""

    def used(self, keys: Sequence[int]) -> None:
        """Do nothing: only the end of a use counts."""

    def put(self, block: Block) -> None:
        """Make a block the last one to be overwritten."""
        self._order[block] = None

    def hold(self, block: Block) -> None:
        """Remove a block."""
        del self._order[block]

    def take(self, count: int) -> list[Block]:
        """Remove the blocks that have been free longest; return them in order."""
        return [self._order.popitem(last=False)[0] for _ in range(count)]

    def check(self, blocks: dict[int, list[Block]]) -> None:
        """Raise AssertionError unless these are the free ones among `blocks`, which are grouped by key."""
        free = {block for twins in blocks.values() for block in twins if not block.holders}
        if free != set(self._order):
            raise AssertionError("the free blocks are not the ones that nobody holds")


class FreeByMarks:
    """RLT over keys. Mutable state: the tree of all keys (held keys are pinned), its leaves, and `_blocks`.

    A free block is dropped if another block has its key, because it is useless. All free blocks can then be evicted
    leaf by leaf.
    """

    # A key is free once at most, so that all free blocks can be evicted leaf by leaf.
    keeps_twins = False

    def __init__(self, capacity: int, rng: random.Random) -> None:
        self._tree = BlockTree(capacity)
        self._leaves = SimulatedRltLeaves(self._tree, rng)
        self._blocks: dict[int, Block] = {}

    def __len__(self) -> int:
        return len(self._blocks)

    def __contains__(self, block: Block) -> bool:
        return self._blocks.get(block.key) is block

    def named(self, key: int, parent: int | None) -> None:
        """Add a held key below its parent and mark it."""
        self._tree.parents[key] = parent
        self._tree.pins[key] = 1
        # With the parent, which is no longer a leaf.
        self._leaves.add((key,) if parent is None else (parent, key), 0 if parent is None else 1)
        self._leaves.use((key,))

    def used(self, keys: Sequence[int]) -> None:
        """Mark keys."""
        self._leaves.use(keys)

    def put(self, block: Block) -> None:
        """Make a key's only block evictable."""
        self._blocks[block.key] = block
        del self._tree.pins[block.key]
        self._leaves.unlock((block.key,))

    def hold(self, block: Block) -> None:
        """Pin a key."""
        del self._blocks[block.key]
        self._tree.pins[block.key] = 1
        self._leaves.lock((block.key,))

    def take(self, count: int) -> list[Block]:
        """Evict random leaves; return their blocks in order."""
        return [self._blocks.pop(key) for key in self._leaves.evict(count)]

    def check(self, blocks: dict[int, list[Block]]) -> None:
        """Raise AssertionError unless these are the free ones among `blocks`, by key, and the tree is consistent."""
        if set(self._tree.parents) != set(blocks):
            raise AssertionError("the tree does not have the pool's keys")
        free = {key: twins[0] for key, twins in blocks.items() if not twins[0].holders}
        if free != self._blocks or set(blocks) - set(free) != set(self._tree.pins):
            raise AssertionError("the free blocks are not the ones that nobody holds")
        if any(not block.holders for twins in blocks.values() if len(twins) > 1 for block in twins):
            raise AssertionError("a block is kept though another has the same key")
        self._leaves.check()


def free_blocks(profile: EngineProfile) -> FreeBlocks:
    """Return an empty set of free blocks with the profile's eviction rule."""
    if profile.eviction == "rlt":
        return FreeByMarks(profile.num_blocks, random.Random(profile.eviction_seed))
    return FreeByAge()
