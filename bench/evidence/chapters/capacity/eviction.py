"""Figures: eviction by leaf-LRU and by RLT."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from bench.evidence.measure.routing.rlt import GROUPS, PAPER_TOKENS, RULES, TRACE_LOADS, TRACE_SEEDS
from bench.evidence.plots import eviction as plots
from bench.evidence.plots.style import rule_name
from bench.evidence.store import Row, load

PAPER = {"lru": 0.0606, "rlt": 0.4193}
"""RLT paper, Table 3: share of hits in a cache of about 200,000 tokens when the groups take turns."""


def hit_share(order: str, tokens: int, eviction: str, groups: int = GROUPS) -> float:
    """Return the share of prompt tokens that one of Table 3's caches hit."""
    return load("rlt").number("hit_share", kind="table_3", order=order, tokens=tokens, eviction=eviction, groups=groups)


def nearest_size() -> int:
    """Return the measured size at which leaf-LRU comes closest to the paper's share."""
    rows = load("rlt").where(kind="table_3", order="round_robin", eviction="lru", groups=GROUPS)
    tokens: int = min((abs(row["hit_share"] - PAPER["lru"]), row["tokens"]) for row in rows)[1]
    return tokens


def loops() -> list[Row]:
    """Return the rows of Theorem 4's loop."""
    return load("rlt").where(kind="theorem_4")


def trace_mean(trace: str, placement: str, order: str, eviction: str, figure: str) -> float:
    """Return a figure of a fleet on a trace, mean over the seeds."""
    rows = load("rlt").where(kind="trace", trace=trace, placement=placement, order=order, eviction=eviction)
    return fmean(row[figure] for row in rows)


def hit_changes() -> list[float]:
    """Return RLT's change of the share of hit tokens, for every rule and trace."""
    return [
        trace_mean(trace, *rule, "rlt", "token_hit_rate") - trace_mean(trace, *rule, "lru", "token_hit_rate")
        for trace in TRACE_LOADS
        for rule in RULES
    ]


def goodput(trace: str, placement: str, order: str, eviction: str) -> float:
    """Return the largest rate with 90 % on time."""
    return load("rlt").number(
        "goodput_qps", kind="goodput", trace=trace, placement=placement, order=order, eviction=eviction
    )


def cycle_tokens() -> int:
    """Return the tokens of one round in which every group sends one request."""
    return int(load("rlt").settings["cycle_tokens"])


def _both(order: str, tokens: int, groups: int = GROUPS) -> list[float]:
    return [hit_share(order, tokens, name, groups) for name in ("lru", "rlt")]


def figures() -> dict[str, Any]:
    """Return the figures of the text."""
    near = _both("round_robin", nearest_size())
    return {
        "groups": GROUPS,
        "cycle": cycle_tokens(),
        "edge": 1 - 190_000 / cycle_tokens(),
        "paper_tokens": PAPER_TOKENS,
        "full": _both("round_robin", PAPER_TOKENS),
        "near_tokens": nearest_size(),
        "near": near,
        "near_times": near[1] / near[0],
        "twice": _both("round_robin", PAPER_TOKENS, 128),
        "mixed": _both("random", PAPER_TOKENS),
        "loops": loops(),
        "seeds": TRACE_SEEDS,
        "traces": [_trace(trace, qps, rule) for trace, qps in TRACE_LOADS.items() for rule in RULES],
    }


def _trace(trace: str, qps: float, rule: tuple[str, str]) -> dict[str, Any]:
    evictions = ("lru", "rlt")
    return {
        "trace": trace,
        "rule": rule_name(*rule),
        "qps": qps,
        "hits": [trace_mean(trace, *rule, eviction, "token_hit_rate") for eviction in evictions],
        "on_time": [trace_mean(trace, *rule, eviction, "slo_share") for eviction in evictions],
        "goodput": [goodput(trace, *rule, eviction) for eviction in evictions],
    }


def draw() -> None:
    """Draw hits over the size of the cache."""
    plots.over_size(load("rlt"), GROUPS, cycle_tokens(), PAPER, "eviction")
