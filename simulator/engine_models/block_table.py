"""The blocks of one sequence in paged memory, and the keys under which its full blocks are cached."""

from __future__ import annotations

from collections.abc import Sequence

from xxhash import xxh3_64_intdigest

from simulator.engine_models.block_pool import BlockPool
from simulator.engine_models.free_blocks import Block
from simulator.engine_models.simulated_engine import PromptSequence


class BlockTable:
    """The blocks of one sequence in the pool; empty before it starts and after it is released.

    Full blocks have the keys of the sequence. Blocks filled by output, and prompt blocks, without a given key get
    unique keys. Mutable state: `blocks` (full, in order), `unfilled` (number of held blocks not yet full),
    `computed` (number of tokens in all blocks), and `_keys` (keys of full blocks, kept after a release, so that a
    preempted sequence can reuse its blocks).
    """

    def __init__(self, pool: BlockPool, sequence: PromptSequence, order: int, block_tokens: int) -> None:
        self._pool = pool
        self._size = block_tokens
        # The order too: an id may come again, and its answer may differ.
        self._salt = f"{order}:{sequence.request_id}".encode()
        whole = sequence.prompt_tokens // block_tokens
        self._keys = list(sequence.keys[:whole])
        if sequence.answer_keys and len(self._keys) == whole:
            self._keys += sequence.answer_keys
        self.blocks: list[Block] = []
        self.unfilled = 0
        self.computed = 0

    def hits(self, wanted: int) -> int:
        """Return the number of leading blocks in the cache. Of `wanted` tokens, at least one is always computed."""
        return self._pool.match(self._keys[: (wanted - 1) // self._size])

    def keys_to_compute(self, hits: int, wanted: int) -> Sequence[int]:
        """Return the known keys of the blocks after the first `hits` that end within `wanted` tokens."""
        return self._keys[hits : wanted // self._size]

    @property
    def held(self) -> int:
        """Number of blocks that the sequence holds, shared or not."""
        return len(self.blocks) + self.unfilled

    def blocks_for(self, tokens: int) -> int:
        """Return how many more blocks the next `tokens` need."""
        return -(-(self.computed + tokens) // self._size) - len(self.blocks) - self.unfilled

    def open(self, hits: int, loaded: int, tokens: int, spare: int = 0) -> list[int] | None:
        """Hold `hits` cached blocks, and allocate blocks for `loaded` ones and for `tokens` more.

        Returns the evicted keys, or None if memory does not leave `spare` blocks.
        """
        keys = self._keys[:hits]
        # Hits and loads are whole blocks, so the rest begins at the start of one.
        new = loaded - (-tokens // self._size)
        # Cached blocks without a holder are among the free ones until they are shared.
        left = self._pool.free - new - spare
        if left < hits and left < self._pool.free_among(keys):
            return None
        self.blocks = self._pool.share(keys)
        self.computed = hits * self._size
        return self.grow(new)

    def grow(self, count: int) -> list[int]:
        """Hold `count` more blocks; return the keys evicted for them."""
        self.unfilled += count
        return self._pool.take(count)

    def compute(self, computed: int) -> tuple[int, tuple[int, ...], int | None]:
        """Record the first `computed` tokens as computed; return position, keys, and parent of blocks that are new in
        the cache.

        If another sequence has already cached a block, it is not new, but this copy stays.
        """
        self.computed = computed
        blocks, keys, new = self.blocks, self._keys, list[int]()
        for position in range(len(blocks), computed // self._size):
            key = self._key(position)
            block, first = self._pool.fill(key, keys[position - 1] if position else None)
            blocks.append(block)
            self.unfilled -= 1
            if first:
                new.append(key)
        position = len(blocks) - len(new)
        return position, tuple(new), keys[position - 1] if position else None

    def release(self) -> None:
        """Release all blocks; full blocks stay in the cache until their memory is needed."""
        self._pool.release(self.blocks, self.unfilled)
        self.blocks = []
        self.unfilled = 0
        self.computed = 0

    def _key(self, position: int) -> int:
        if position == len(self._keys):
            self._keys.append(xxh3_64_intdigest(self._salt, self._keys[-1] if self._keys else 0))
        return self._keys[position]
