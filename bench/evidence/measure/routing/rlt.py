"""RLT against leaf-LRU: Table 3 as a sweep over the size of the cache, Theorem 4's loop, and real traces.

Table 3's cache is measured in tokens: one block per token, prompts and answers both kept, one request after another.
Hits are a share of all prompt tokens, including the first, cold round.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from typing import Literal

import msgspec

from bench.evidence.belady_leaves import BeladyLeaves
from bench.evidence.cells import Cell, names_of, run_all, run_cell, settings, spec_of
from bench.evidence.store import Result, Row, measured
from bench.evidence.traces import workload
from simulator.engine_cache.evictions import eviction_rule
from simulator.engine_cache.leaf_eviction import EvictionRule
from simulator.engine_cache.lru_leaves import LruLeaves
from simulator.engine_cache.prefix_cache import PrefixCache
from simulator.runs.goodput import find_goodput
from simulator.workloads.shared_prefix import SharedPrefixShape

GROUPS = 64
PAPER_TOKENS = 200_000
SIZES = tuple(1000 * thousands for thousands in (140, 155, 170, 180, 190, 191, 192, 194, 196, 198, 199, 200, 210, 230))
EVICTIONS: tuple[Literal["lru", "rlt"], ...] = ("lru", "rlt")
ORDERS = ("round_robin", "random")
LOOPS = ((64, 8), (256, 8), (256, 128), (1024, 8))
"""Capacity B and path length L of Theorem 4's loop."""
LOOP_SEEDS, LOOP_PHASES = 20, 40
RULES = (("dual_map", "fifo"), ("least_cost", "fifo"), ("least_cost", "slack"))
TRACE_LOADS = {"conversation": 10.0, "toolagent_like": 18.0}
TRACE_SEEDS = 3


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """One cache of Table 3."""

    order: str
    tokens: int
    eviction: Literal["lru", "rlt"]
    groups: int = GROUPS
    seed: int = 1


def measure(jobs: int) -> Result:
    """Measure all three."""
    shape = SharedPrefixShape(groups=GROUPS)
    gsp: Row = {name: value for name, value in msgspec.to_builtins(shape).items() if name not in ("qps", "order")}
    rows = run_all(hit_share, sweeps(), jobs=jobs, title="Table 3")
    rows += run_all(loop_misses, LOOPS, jobs=jobs, title="Theorem 4")
    rows += run_all(on_trace, trace_cells(TRACE_SEEDS), jobs=jobs, title="RLT on traces")
    rows += run_all(goodput_on_trace, trace_cells(1), jobs=jobs, title="RLT, goodput")
    return measured(
        name="rlt",
        settings=settings()
        | {"gsp": gsp, "cycle_tokens": cycle_tokens(shape), "loop_seeds": LOOP_SEEDS, "loop_phases": LOOP_PHASES},
        rows=rows,
    )


def sweeps() -> list[Sweep]:
    """Return the caches of Table 3: all sizes, both orders, both rules; and twice the groups at the paper's size."""
    made = [
        Sweep(order=order, tokens=tokens, eviction=eviction)
        for order in ORDERS
        for tokens in SIZES
        for eviction in EVICTIONS
    ]
    return made + [Sweep(order="round_robin", tokens=PAPER_TOKENS, eviction=item, groups=128) for item in EVICTIONS]


def trace_cells(seeds: int) -> list[Cell]:
    """Return the simulations of fleets on the traces."""
    return [
        Cell(trace=trace, placement=placement, order=order, qps=qps, eviction=eviction, seed=seed)
        for trace, qps in TRACE_LOADS.items()
        for placement, order in RULES
        for eviction in EVICTIONS
        for seed in range(seeds)
    ]


def on_trace(cell: Cell) -> Row:
    """Run one simulation and keep the figures that differ between the two rules."""
    row = run_cell(cell)
    kept = ("token_hit_rate", "hit_rate_infinite", "slo_share", "ttft_mean_s", "ttft_p90_s")
    return _named("trace", cell) | {name: row[name] for name in kept}


def goodput_on_trace(cell: Cell) -> Row:
    """Search for the largest rate with 90 % on time, from the cell's rate on."""
    goodput = find_goodput(spec_of(cell), workload(cell.trace))
    return _named("goodput", cell) | {"goodput_qps": goodput.by_requests, "goodput_both_qps": goodput.by_both}


def _named(kind: str, cell: Cell) -> Row:
    return {"kind": kind} | names_of(cell) | {"eviction": cell.eviction, "seed": cell.seed}


def cycle_tokens(shape: SharedPrefixShape) -> int:
    """Return the tokens of one round in which every group sends one request, including answers."""
    return sum(length_of(shape, group) + shape.output_tokens for group in range(shape.groups))


def length_of(shape: SharedPrefixShape, group: int) -> int:
    """Return the prompt tokens of a group's requests."""
    return shape.lengths[group % len(shape.lengths)]


def token_paths(shape: SharedPrefixShape, seed: int) -> Iterator[tuple[int, range, range]]:
    """Yield each request: its prompt length, and the keys of its shared and of its other tokens.

    Each token of each prefix has a distinct key.
    """
    groups = [group for _ in range(shape.prompts) for group in range(shape.groups)]
    if shape.order == "random":
        random.Random(seed).shuffle(groups)
    spaces = 1 << 14
    for number, group in enumerate(groups):
        length = length_of(shape, group)
        shared = int(length * shape.ratio)
        own = (shape.groups + number) * spaces
        yield (
            length,
            range(group * spaces, group * spaces + shared),
            range(own, own + length - shared + shape.output_tokens),
        )


def hit_share(sweep: Sweep) -> Row:
    """Send all requests through one cache and return the share of prompt tokens that were hits."""
    shape = SharedPrefixShape(groups=sweep.groups, order="random" if sweep.order == "random" else "round_robin")
    cache = PrefixCache(sweep.tokens, eviction_rule(sweep.eviction, random.Random(sweep.seed)))
    hits = asked = 0
    for length, shared, own in token_paths(shape, sweep.seed):
        keys = (*shared, *own)
        hits += cache.match(keys)
        asked += length
        cache.insert(keys)
    named: Row = msgspec.to_builtins(sweep)
    return {"kind": "table_3"} | named | {"hit_share": hits / asked}


def loop_misses(loop: tuple[int, int]) -> Row:
    """Count misses per phase in Theorem 4's loop: B − L + 2 paths of L blocks that differ only in the last one.

    A phase has B distinct blocks and thus B − L + 1 paths. The first phase, in which all rules start empty, is
    excluded.
    """
    capacity, length = loop
    leaves = capacity - length + 2
    shared = tuple(range(length - 1))
    paths = [(*shared, length + number % leaves) for number in range(LOOP_PHASES * (leaves - 1))]

    def misses(eviction: EvictionRule) -> float:
        cache, missed = PrefixCache(capacity, eviction), 0
        for path in paths:
            missed += len(path) - cache.match(path)
            cache.insert(path)
        return (missed - capacity) / (LOOP_PHASES - 1)

    rlt = [misses(eviction_rule("rlt", random.Random(seed))) for seed in range(LOOP_SEEDS)]
    return {
        "kind": "theorem_4",
        "capacity": capacity,
        "length": length,
        "lru": misses(LruLeaves),
        "opt": misses(partial(BeladyLeaves, paths=paths)),
        "rlt": sum(rlt) / len(rlt),
        "bound": 2 * sum(1 / item for item in range(1, leaves + 1)),
    }
