"""The cost of one eviction in a full cache of a million blocks: `python -m bench.simulator.eviction --json OUT`.

Prompts of 16 blocks share their first 8 with nine others. In the full cache, every new block evicts one. The figures
are the whole insertion, and the rule's choice and eviction alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from random import Random

from bench.report import Target, command_line, write_report
from simulator.engine_cache.evictions import EVICTIONS, eviction_rule
from simulator.engine_cache.leaf_eviction import BlockTree
from simulator.engine_cache.prefix_cache import PrefixCache
from simulator.engine_cache.rlt_leaves import SimulatedRltLeaves

BLOCKS = 1_000_000
DEPTH, SHARED, SIBLINGS = 16, 8, 10
PROMPTS, CHOICES, ROUNDS = 2_000, 20_000, 12


def prompts(rng: Random) -> Iterator[tuple[int, ...]]:
    """Yield chains of new blocks indefinitely."""
    while True:
        prefix = tuple(rng.getrandbits(64) for _ in range(SHARED))
        for _ in range(SIBLINGS):
            yield (*prefix, *(rng.getrandbits(64) for _ in range(DEPTH - SHARED)))


def insertion_us(eviction: str) -> float:
    """Return the microseconds per block of an insertion into a full cache, best round."""
    rng = Random(3)
    cache = PrefixCache(BLOCKS, eviction_rule(eviction, rng))
    coming = prompts(rng)
    while len(cache) < BLOCKS:
        cache.insert(next(coming))
    best = float("inf")
    for _ in range(ROUNDS):
        batch = [next(coming) for _ in range(PROMPTS)]
        started = time.perf_counter()
        evicted = sum(len(cache.insert(prompt)) for prompt in batch)
        best = min(best, (time.perf_counter() - started) / evicted)
    return best * 1e6


def choice_us() -> float:
    """Return the microseconds of one RLT choice and eviction, including leaf bookkeeping, best round."""
    rng = Random(3)
    tree = BlockTree(BLOCKS)
    leaves = SimulatedRltLeaves(tree, rng)
    coming = prompts(rng)
    while len(tree.parents) < BLOCKS:
        path = next(coming)
        held = SHARED if path[SHARED - 1] in tree.parents else 0
        tree.parents.update(zip(path[held:], (path[held - 1] if held else None, *path[held:]), strict=False))
        leaves.add(path, held)
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.perf_counter()
        leaves.evict(CHOICES)
        best = min(best, (time.perf_counter() - started) / CHOICES)
    return best * 1e6


def main() -> None:
    """Measure and write the figures."""
    parser = command_line("eviction", __doc__)
    arguments = parser.parse_args()
    figures = {f"{name}_insertion_us_per_block": insertion_us(name) for name in EVICTIONS}
    figures["rlt_choice_us"] = choice_us()
    targets = {name: Target(value=figures[name], op="<=", target=5.0) for name in ("rlt_choice_us",)}
    rounded = {key: round(value, 3) for key, value in figures.items()}
    write_report("eviction", rounded, targets, arguments.json)


if __name__ == "__main__":
    main()
