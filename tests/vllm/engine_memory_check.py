"""Prefetched blocks in vLLM's own block pool: found, evicted, and announced like others; run by the engine's Python."""

from __future__ import annotations

import hashlib

from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_utils import BlockHash

from kvstore.connector.engine_memory import EngineCacheBlocks
from kvstore.connector.engine_prefetch import NamedBlock

TOKENS = 16


def named(blocks: int, prompt: str = "p") -> list[NamedBlock]:
    """Return the names of a prompt's blocks."""
    return [NamedBlock(hashlib.sha256(f"{prompt} {at}".encode()).digest(), at + 1, at) for at in range(blocks)]


def main() -> None:
    """Raise AssertionError unless the pool treats prefetched blocks as its own."""
    pool = BlockPool(10, enable_caching=True, hash_block_size=TOKENS, enable_kv_cache_events=True)
    memory, names = EngineCacheBlocks(pool, TOKENS), named(3)
    assert (memory.blocks, memory.free()) == (10, 9), "the null block is never free"
    taken = memory.take(4)
    assert memory.free() == 5
    memory.give_back(taken, names)
    assert memory.free() == 9
    assert all(memory.holds(name.chain_hash) for name in names)
    (event,) = pool.take_events()
    assert [bytes(item) for item in event.block_hashes] == [name.chain_hash for name in names]
    assert event.token_ids == [] and [keys[1] for keys in event.extra_keys] == [1, 2, 3]

    again = memory.take(1)
    memory.give_back(again, names[:1])
    assert not pool.take_events(), "a block that is there is not cached twice"

    hit = pool.get_cached_block(BlockHash(names[0].chain_hash), [0])
    assert hit is not None
    pool.touch(hit)
    assert memory.free() == 8
    pool.free_blocks(hit)
    # The next to go are blocks without a name, then the prompt's end.
    memory.give_back(memory.take(7), [])
    assert [memory.holds(name.chain_hash) for name in names] == [True, True, False]
    memory.drop([names[1].chain_hash])
    assert [memory.holds(name.chain_hash) for name in names] == [True, False, False]
    assert memory.free() == 9
    assert len(pool.take_events()) == 2


if __name__ == "__main__":
    main()
