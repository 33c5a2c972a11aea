"""Free blocks of vLLM's block pool for prefetches (0.32, `vllm/v1/core/block_pool.py`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from vllm.distributed.kv_events import MEDIUM_GPU, BlockStored
from vllm.v1.core.kv_cache_utils import BlockHash, make_block_hash_with_group_id, maybe_convert_block_hash

from kvstore.connector.engine_prefetch import NamedBlock
from kvstore.events.node_blocks import extra_key

_GROUP = 0
"""The connector's models have one group of blocks."""


class EngineCacheBlocks:
    """Blocks that no request uses, through the pool's own methods, so that it counts and evicts them as any other."""

    def __init__(self, block_pool: Any, block_tokens: int) -> None:
        self._pool, self._block_tokens = block_pool, block_tokens
        self.blocks: int = block_pool.num_gpu_blocks

    def free(self) -> int:
        """Return the number of free blocks."""
        return int(self._pool.get_num_free_blocks())

    def holds(self, chain_hash: bytes) -> bool:
        """Return whether the block with this hash is in the prefix cache."""
        return self._pool.get_cached_block(BlockHash(chain_hash), [_GROUP]) is not None

    def take(self, blocks: int) -> list[int]:
        """Return this many free blocks, the next to be evicted."""
        return [block.block_id for block in self._pool.get_new_blocks(blocks)]

    def give_back(self, block_ids: Sequence[int], named: Sequence[NamedBlock]) -> None:
        """Free the blocks, and cache the leading ones under their names, unless a request has computed them."""
        blocks = [self._pool.blocks[block_id] for block_id in block_ids]
        new = [(block, name) for block, name in zip(blocks, named, strict=False) if not self.holds(name.chain_hash)]
        for block, name in new:
            # The pool has no public method for blocks without a request.
            key = make_block_hash_with_group_id(BlockHash(name.chain_hash), _GROUP)
            self._pool._insert_block_hash(key, block, num_tokens=(name.position + 1) * self._block_tokens)
        # As vLLM frees a request: the end of the prompt is evicted first.
        self._pool.free_blocks(reversed(blocks))
        if new and self._pool.enable_kv_cache_events:
            self._pool.kv_event_queue.append(self._stored([name for _, name in new]))

    def drop(self, chain_hashes: Iterable[bytes]) -> None:
        """Remove blocks from the prefix cache."""
        for chain_hash in chain_hashes:
            for block in self._pool.get_cached_block(BlockHash(chain_hash), [_GROUP]) or ():
                self._pool.evict_blocks({block.block_id})

    def _stored(self, named: Sequence[NamedBlock]) -> BlockStored:
        """Return an event that names the blocks by the gateway's keys: their token ids are not known here."""
        return BlockStored(
            block_hashes=[maybe_convert_block_hash(BlockHash(name.chain_hash)) for name in named],
            parent_block_hash=None,
            token_ids=[],
            block_size=self._block_tokens,
            lora_id=None,
            medium=MEDIUM_GPU,
            lora_name=None,
            extra_keys=[tuple(extra_key(name.routing_key, name.chain_hash) or ()) for name in named],
            group_idx=_GROUP,
        )
