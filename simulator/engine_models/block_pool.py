"""The paged KV memory of one engine: blocks of running sequences, and a prefix cache in the free blocks.

As in vLLM V1, a full block gets a key and can be shared; references are counted. A sequence that ends releases its
blocks from the tail. Free blocks keep their content until they are reused, in the order of `FreeBlocks`. Two blocks can
have the same key if two sequences computed it at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from simulator.engine_models.free_blocks import Block, FreeBlocks, FreeByAge


class BlockPool:
    """`capacity` blocks, each of which is empty, held, or free with content.

    Mutable state: `_named` (key → blocks with it, oldest first), `_free` (blocks with content but without a holder),
    `_empty` (number of blocks without content or holder), and `_open` (number of held blocks that are not yet full).
    """

    def __init__(self, capacity: int, free: FreeBlocks | None = None) -> None:
        self.capacity = capacity
        self._named: dict[int, list[Block]] = {}
        self._free: FreeBlocks = FreeByAge() if free is None else free
        self._empty = capacity
        self._open = 0

    def __len__(self) -> int:
        return len(self._named)

    def __contains__(self, key: int) -> bool:
        return key in self._named

    @property
    def free(self) -> int:
        """Number of available blocks."""
        return self._empty + len(self._free)

    @property
    def held(self) -> int:
        """Number of blocks that running sequences hold."""
        return self.capacity - self.free

    def match(self, keys: Sequence[int]) -> int:
        """Return the number of leading keys that are present; this does not count as a use."""
        for depth, key in enumerate(keys):
            if key not in self._named:
                return depth
        return len(keys)

    def free_among(self, keys: Sequence[int]) -> int:
        """Return how many free blocks `share(keys)` would hold."""
        return sum(1 for key in keys if not self._named[key][0].holders)

    def share(self, keys: Sequence[int]) -> list[Block]:
        """Hold the blocks of these keys, which must be present; return them in order."""
        blocks = []
        for key in keys:
            block = self._named[key][0]
            if not block.holders:
                self._free.hold(block)
            block.holders += 1
            blocks.append(block)
        self._free.used(keys)
        return blocks

    def take(self, count: int) -> list[int]:
        """Hold `count` blocks to be filled; return the keys that are no longer in the pool, in order.

        Empty blocks are used first. Raises ValueError if too few blocks are free.
        """
        if count > self.free:
            raise ValueError(f"{count} blocks are wanted and {self.free} are free")
        from_empty = min(count, self._empty)
        self._empty -= from_empty
        self._open += count
        gone = []
        for block in self._free.take(count - from_empty):
            self._unname(block)
            # Another block may still have the same content.
            if block.key not in self._named:
                gone.append(block.key)
        return gone

    def fill(self, key: int, parent: int | None = None) -> tuple[Block, bool]:
        """Give a full, held block its key; `parent` is the key of the block before it.

        Returns the block, and whether its key is new in the pool.
        """
        if not self._open:
            raise ValueError("no block is being filled")
        self._open -= 1
        block, twins = Block(key), self._named.get(key)
        if twins is None:
            self._named[key] = [block]
            self._free.named(key, parent)
            return block, True
        twins.append(block)
        # Useless from now on: a held block has the same key.
        if not self._free.keeps_twins and not twins[0].holders:
            self._free.hold(twins[0])
            self._discard(twins[0])
        return block, False

    def release(self, blocks: Sequence[Block], unfilled: int) -> None:
        """Release a sequence's full blocks in order, and its blocks that are not full."""
        self._open -= unfilled
        self._empty += unfilled
        # Tail first, as in vLLM: a chain without its head is of no use, one without its tail is.
        for block in reversed(blocks):
            block.holders -= 1
            if block.holders:
                continue
            if self._free.keeps_twins or len(self._named[block.key]) == 1:
                self._free.put(block)
            else:
                self._discard(block)

    def clear(self) -> None:
        """Drop the content of free blocks."""
        for block in self._free.take(len(self._free)):
            self._discard(block)

    def check(self) -> None:
        """Raise AssertionError unless every block is counted exactly once."""
        named = [block for twins in self._named.values() for block in twins]
        if any(not twins or any(block.key != key for block in twins) for key, twins in self._named.items()):
            raise AssertionError("a key has no block, or another's")
        self._free.check(self._named)
        if self._empty < 0 or self._open < 0 or len(named) + self._empty + self._open != self.capacity:
            raise AssertionError(f"{len(named)} + {self._empty} + {self._open} blocks are not {self.capacity}")

    def _discard(self, block: Block) -> None:
        self._unname(block)
        self._empty += 1

    def _unname(self, block: Block) -> None:
        twins = self._named[block.key]
        twins.remove(block)
        if not twins:
            del self._named[block.key]
