"""Assigns engines to shards of the probe job. Shards are even, and growth moves as few engines as possible."""

from __future__ import annotations

import xxhash

SHARD_ENGINES = 100
"""Average number of engines per shard. With hashing, a shard rarely exceeds 125."""
MAX_SHARDS = 4096

_MULTIPLIER = 2862933555777941757
_WORD = (1 << 64) - 1


def shard_count(engines: int) -> int:
    """Return the number of shards for this many engines, none without engines."""
    return min(MAX_SHARDS, -(-engines // SHARD_ENGINES))


def shard_of(engine_id: str, shards: int) -> int:
    """Return the engine's shard, 0 … shards − 1. Adding a shard moves engines only to the new shard.

    Jump consistent hashing (Lamping and Veach 2014, figure 1).
    """
    key = xxhash.xxh3_64_intdigest(engine_id.encode())
    chosen, jump = -1, 0
    while jump < shards:
        chosen = jump
        key = (key * _MULTIPLIER + 1) & _WORD
        jump = int((chosen + 1) * ((1 << 31) / ((key >> 33) + 1)))
    return chosen
