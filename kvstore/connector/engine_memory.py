"""Free blocks of vLLM's block pool for prefetches (0.32, `vllm/v1/core/block_pool.py`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from vllm.distributed.kv_events import MEDIUM_GPU, BlockStored
from vllm.v1.core.kv_cache_utils import BlockHash, make_block_hash_with_group_id, maybe_convert_block_hash

from kvstore.events.node_blocks import extra_key

_GROUP = 0
"""The connector's models have one group of blocks."""


class EngineMemory:
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

    def give_back(self, block_ids: Sequence[int], chain_hashes: Sequence[bytes], routing_keys: Sequence[int]) -> None:
        """Free the blocks, and cache those with a hash that was not computed meanwhile."""
        blocks = [self._pool.blocks[block_id] for block_id in block_ids]
        new: list[tuple[bytes, int]] = []
        for block, chain_hash, routing_key in zip(blocks, chain_hashes, routing_keys, strict=False):
            if not self.holds(chain_hash):
                block.block_hash = make_block_hash_with_group_id(BlockHash(chain_hash), _GROUP)
                self._pool.cached_block_hash_to_block.insert(block.block_hash, block)
                new.append((chain_hash, routing_key))
        # As vLLM frees a request: the end of the prompt is evicted first.
        self._pool.free_blocks(reversed(blocks))
        if new and self._pool.enable_kv_cache_events:
            self._pool.kv_event_queue.append(self._stored(new))

    def drop(self, chain_hashes: Iterable[bytes]) -> None:
        """Remove blocks from the prefix cache."""
        for chain_hash in chain_hashes:
            for block in self._pool.get_cached_block(BlockHash(chain_hash), [_GROUP]) or ():
                self._pool.evict_blocks({block.block_id})

    def _stored(self, blocks: Sequence[tuple[bytes, int]]) -> BlockStored:
        """Return an event that names the blocks by the gateway's keys: their token ids are not known here."""
        return BlockStored(
            block_hashes=[maybe_convert_block_hash(BlockHash(chain_hash)) for chain_hash, _ in blocks],
            parent_block_hash=None,
            token_ids=[],
            block_size=self._block_tokens,
            lora_id=None,
            medium=MEDIUM_GPU,
            lora_name=None,
            extra_keys=[tuple(extra_key(routing_key, chain_hash) or ()) for chain_hash, routing_key in blocks],
        )
