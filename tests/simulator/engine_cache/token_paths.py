"""Paths of named blocks for tests of caches, and counts of their misses."""

from __future__ import annotations

import random
from collections.abc import Sequence

from kvstore.keys.block_keys import token_block_keys
from simulator.engine_cache.leaf_eviction import EvictionRule
from simulator.engine_cache.prefix_cache import PrefixCache

Path = tuple[int, ...]


def keys_of(prompt: Sequence[int]) -> Path:
    """Return the chained keys of a prompt with one token per block."""
    return token_block_keys(1, list(prompt), 1)


def loop(capacity: int, length: int, phases: int) -> list[Path]:
    """Return Theorem 4's paths in order: B − L + 2 paths that differ only in their last block.

    A phase has B different blocks, which is B − L + 1 paths.
    """
    leaves = capacity - length + 2
    shared = range(length - 1)
    return [(*shared, length + number % leaves) for number in range(phases * (leaves - 1))]


def random_paths(seed: int, count: int) -> list[Path]:
    """Return chains of 2 to 6 blocks over a small alphabet, with some frequently requested prefixes."""
    rng = random.Random(seed)
    return [
        keys_of([min(int(rng.expovariate(0.8)), 4) for _ in range(rng.randint(2, 6))]) for _ in range(count)
    ]  # fmt: skip


def misses(paths: Sequence[Path], capacity: int, rule: EvictionRule) -> int:
    """Return the number of missed blocks of the paths in order, starting with an empty cache."""
    cache, missed = PrefixCache(capacity, rule), 0
    for path in paths:
        missed += len(path) - cache.match(path)
        cache.insert(path)
        cache.check()
    return missed


def harmonic(count: int) -> float:
    """Return 1 + 1/2 + … + 1/count."""
    return sum(1 / number for number in range(1, count + 1))
