"""LBGR and RLT on generated shared prefixes (§5, Table 2, Figs. 4–7; App. B, Figs. 10–14).

The paper's engines are known only by their results, so the table is measured at several speeds. The figures' settings
vary one parameter each at one speed.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from bench.evidence.cells import run_all
from bench.evidence.shared_prefix_runs import BLOCK_TOKENS, CACHE_TOKENS, ENGINES, QPS, SharedPrefixRun, run_row
from bench.evidence.store import Result, Row, measured
from routing.policy.policy_document import Parameter


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A placement with an order, and an eviction rule in the engines."""

    placement: str
    order: str = "fifo"
    params: dict[str, Parameter] = {}
    eviction: Literal["lru", "rlt"] = "lru"


PAPER: dict[str, Rule] = {
    "cache-aware + LRU": Rule(placement="sglang_cache_aware"),
    "cache-aware + RLT": Rule(placement="sglang_cache_aware", eviction="rlt"),
    "LBGR + LRU": Rule(placement="lbgr"),
    "LBGR + RLT": Rule(placement="lbgr", eviction="rlt"),
}
"""The rows of Table 2."""
QUEUES_KEPT = "LBGR, standing queues kept, + RLT"
OTHERS: dict[str, Rule] = {
    "random + LRU": Rule(placement="random"),
    QUEUES_KEPT: Rule(placement="lbgr", params={"keep_pending": True}, eviction="rlt"),
    "min_ttft + RLT": Rule(placement="min_ttft", eviction="rlt"),
    "least_cost + LRU": Rule(placement="least_cost"),
    "least_cost + RLT": Rule(placement="least_cost", eviction="rlt"),
    "least_cost + slack + LRU": Rule(placement="least_cost", order="slack"),
}
RULES = PAPER | OTHERS
SWEPT = ("random + LRU", "cache-aware + LRU", "cache-aware + RLT", "LBGR + RLT", QUEUES_KEPT, "least_cost + LRU")

TABLE_SPEEDS = (6000, 6500, 7000, 7500, 8000)
"""Prefill tokens per second of one engine."""
TABLE_SEEDS = 3
SWEEP_SEEDS = {"cache-aware + LRU": 3, "LBGR + RLT": 3}
"""Runs of each point of a sweep, 1 for others: under LBGR a fleet keeps up with some seeds and not with others."""
SPEED = 7000
"""Prefill speed in all sweeps."""
_GPU_BYTES, _WEIGHT_BYTES, _TOKEN_BYTES = 48e9, 16e9, 131_072
"""An L40, Llama-3.1-8B's weights in 16 bits, and the KV of one of its tokens."""
GPU_SHARES = (0.5, 0.6, 0.7, 0.8, 0.9)

SWEEPS: dict[str, tuple[str, tuple[float, ...]]] = {
    "rate": ("qps", (4.0, 8.0, 12.0, 16.0, 20.0)),
    "workers": ("engines", (2, 4, 6, 8, 10)),
    "cache": ("cache_tokens", tuple(int((_GPU_BYTES * share - _WEIGHT_BYTES) / _TOKEN_BYTES) for share in GPU_SHARES)),
    "ratio": ("ratio", (0.3, 0.5, 0.7, 0.9)),
    "group": ("prompts", (4, 16, 32, 64, 128)),
}
"""Figs. 5, 6, 7, 10 and 11: the varied parameter and its values."""
BATCH_SWEEPS: dict[str, tuple[str, tuple[float, ...]]] = {
    "output": ("output_tokens", (4, 32, 128)),
    "batch": ("max_running", (1, 4, 16, 64)),
}
"""Figs. 12 and 13, which need engines that batch and decode."""
BATCH_RULES = ("cache-aware + LRU", "cache-aware + RLT", "LBGR + RLT", QUEUES_KEPT, "least_cost + LRU")
BATCH_SPEED, BATCH_BLOCK_TOKENS = 8000, 64
DECAY_MS = (10, 20, 40, 80, 160, 320)
"""Fig. 14 varies the interval from 10 to 80 ms."""
DECAY_SPEEDS = (7000, 8000)
ORDER_SPEEDS = (7000, 8000)


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One run: its figure in the paper, its rule, and its value of the varied parameter."""

    kind: str
    rule: str
    value: float = 0.0
    run: SharedPrefixRun


def measure(jobs: int) -> Result:
    """Run the table and all sweeps."""
    asked = [*table_runs(), *sweep_runs(), *order_runs(), *decay_runs(), *batch_runs()]
    return measured(
        name="shared_prefix",
        settings={
            "groups": 128,
            "prompts": 32,
            "block_tokens": BLOCK_TOKENS,
            "engines": ENGINES,
            "cache_tokens": CACHE_TOKENS,
            "qps": QPS,
            "sweep_tokens_per_s": SPEED,
            "batch_tokens_per_s": BATCH_SPEED,
            "batch_block_tokens": BATCH_BLOCK_TOKENS,
            "seeds": {"table": TABLE_SEEDS, "sweeps": SWEEP_SEEDS},
        },
        rows=run_all(run_asked, asked, jobs=jobs, title="shared prefixes"),
    )


def run_asked(asked: Asked) -> Row:
    """Run one case and return its parameters and its figures."""
    row: Row = {"kind": asked.kind, "rule": asked.rule, "value": asked.value}
    return row | run_row(asked.run)


def table_runs() -> list[Asked]:
    """Return Table 2 with more rules, for every speed."""
    return [
        _asked("table", name, speed, tokens_per_s=speed, seed=seed)
        for speed in TABLE_SPEEDS
        for name in RULES
        for seed in range(1, TABLE_SEEDS + 1)
    ]


def sweep_runs() -> list[Asked]:
    """Return Figs. 5, 6, 7, 10 and 11."""
    return [
        _asked(kind, name, value, tokens_per_s=SPEED, seed=seed, **{field: value})
        for kind, (field, values) in SWEEPS.items()
        for value in values
        for name in SWEPT
        for seed in range(1, SWEEP_SEEDS.get(name, 1) + 1)
    ]


def order_runs() -> list[Asked]:
    """Return Fig. 4: groups that take turns, at two speeds."""
    return [
        _asked("order", name, speed, tokens_per_s=speed, seed=seed, arrivals="round_robin")
        for speed in ORDER_SPEEDS
        for name in SWEPT
        for seed in range(1, SWEEP_SEEDS.get(name, 1) + 1)
    ]


def decay_runs() -> list[Asked]:
    """Return Fig. 14: LBGR + RLT with other decay intervals, at two speeds."""
    rule = RULES["LBGR + RLT"]
    return [
        _asked(
            "decay", "LBGR + RLT", milliseconds,
            placement_params={**rule.params, "decay_interval_s": milliseconds / 1000}, tokens_per_s=speed, seed=seed,
        )
        for speed in DECAY_SPEEDS
        for milliseconds in DECAY_MS
        for seed in range(1, TABLE_SEEDS + 1)
    ]  # fmt: skip


def batch_runs() -> list[Asked]:
    """Return Figs. 12 and 13: engines that batch prompts in chunks and decode."""
    return [
        _asked(
            kind, name, value,
            tokens_per_s=BATCH_SPEED, block_tokens=BATCH_BLOCK_TOKENS, engine_model="chunked", **{field: value},
        )
        for kind, (field, values) in BATCH_SWEEPS.items()
        for value in values
        for name in BATCH_RULES
    ]  # fmt: skip


def _asked(kind: str, name: str, value: float = 0.0, **varied: Any) -> Asked:
    rule = RULES[name]
    settings = {
        "placement": rule.placement,
        "order": rule.order,
        "placement_params": rule.params,
        "eviction": rule.eviction,
    } | varied
    return Asked(kind=kind, rule=name, value=value, run=SharedPrefixRun(**settings))
