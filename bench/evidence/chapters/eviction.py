"""Chapter: which cached block goes: leaf-LRU or, by chance, RLT."""

from __future__ import annotations

from statistics import fmean

from bench.evidence.claims import percent
from bench.evidence.measure.rlt import GROUPS, PAPER_TOKENS, RULES, TRACE_LOADS, TRACE_SEEDS
from bench.evidence.plots import eviction as plots
from bench.evidence.plots.style import rule_name
from bench.evidence.store import Row, load

PAPER = {"lru": 0.0606, "rlt": 0.4193}
"""RLT paper, Table 3: share of hits in a cache of about 200,000 tokens when the groups take turns."""


def hit_share(order: str, tokens: int, eviction: str, groups: int = GROUPS) -> float:
    """Return the share of prompt tokens that one of Table 3's caches hit."""
    return load("rlt").number(
        "hit_share", kind="table_3", order=order, tokens=tokens, eviction=eviction, groups=groups
    )  # fmt: skip


def nearest_size() -> int:
    """Return the size at which leaf-LRU comes closest to the paper's share, of those measured."""
    rows = load("rlt").where(kind="table_3", order="round_robin", eviction="lru", groups=GROUPS)
    return min((abs(_number(row, "hit_share") - PAPER["lru"]), int(_number(row, "tokens"))) for row in rows)[1]


def loops() -> list[Row]:
    """Return the rows of Theorem 4's loop."""
    return load("rlt").where(kind="theorem_4")


def trace_mean(trace: str, placement: str, order: str, eviction: str, figure: str) -> float:
    """Return a figure of a fleet on a trace, mean over the seeds."""
    rows = load("rlt").where(kind="trace", trace=trace, placement=placement, order=order, eviction=eviction)
    return fmean(_number(row, figure) for row in rows)


def hit_changes() -> list[float]:
    """Return what RLT adds to the share of hit tokens, for every rule and trace."""
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
    """Return the tokens of one round in which every group asks once."""
    cycle = load("rlt").settings["cycle_tokens"]
    if not isinstance(cycle, int):
        raise TypeError("cycle_tokens is no number of tokens")
    return cycle


def text() -> str:
    """Return the chapter with its picture."""
    result = load("rlt")
    cycle = cycle_tokens()
    picture = plots.over_size(result, GROUPS, cycle, PAPER, "eviction")
    size = nearest_size()
    lru, rlt = hit_share("round_robin", size, "lru"), hit_share("round_robin", size, "rlt")
    full = [percent(hit_share("round_robin", PAPER_TOKENS, each)) for each in ("lru", "rlt")]
    twice = [percent(hit_share("round_robin", PAPER_TOKENS, each, 128)) for each in ("lru", "rlt")]
    mixed = [percent(hit_share("random", PAPER_TOKENS, each)) for each in ("lru", "rlt")]
    return f"""## Eviction

![Hits over the size of the cache]({picture})

*{GROUPS} groups of 32 prompts, 512 to 8,192 tokens, half of each shared; one cache, by the token, prompts and answers.
Dashed: the tokens of one round of all groups. Crosses: the RLT paper's Table 3.*

RLT marks what is used and evicts an unmarked leaf by chance. When the groups take turns, one round of all has {cycle:,} tokens,
and leaf-LRU falls from all that can be hit to nothing as the cache gets {100 * (1 - 190_000 / cycle):.0f} % smaller than that;
RLT fades. The paper's 6.92 times stands on that edge: with its {PAPER_TOKENS:,} tokens leaf-LRU hits {full[0]} here and RLT
{full[1]}; with {size:,} tokens it is {percent(lru)} and {percent(rlt)}, {rlt / lru:.1f} times. With twice as many groups both are lost
({twice[0]} and {twice[1]}). In random order they are {mixed[0]} and {mixed[1]}: all groups ask again with the same chance, so age
does not tell who is next, and most leaves are ends of prompts that nobody shares.

**Theorem 4's loop.** B − L + 2 paths of L blocks that differ in the last one only, again and again; misses per phase:

{_loop_table()}

**On the traces.** Fleets of eight, hit tokens as the mean of {TRACE_SEEDS} seeds; goodput by requests:

{_trace_table()}

No order that a trace brings is like that loop, and what was used lately is used again: there RLT loses a little. It is a
setting of the engines, not the default.
"""


def _loop_table() -> str:
    lines = [
        "| B | L | leaf-LRU | optimum | RLT | bound 2·H(B − L + 2) |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    for row in loops():
        lines.append(
            f"| {row['capacity']} | {row['length']} | {row['lru']:g} | {row['opt']:g} "
            f"| {_number(row, 'rlt'):.2f} | {_number(row, 'bound'):.2f} |"
        )
    return "\n".join(lines)


def _trace_table() -> str:
    lines = [
        "| trace | rule | requests/s | hits leaf-LRU | RLT | on time leaf-LRU | RLT | goodput leaf-LRU | RLT |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for trace, qps in TRACE_LOADS.items():
        for rule in RULES:
            hits = [percent(trace_mean(trace, *rule, each, "token_hit_rate")) for each in ("lru", "rlt")]
            on_time = [percent(trace_mean(trace, *rule, each, "slo_share")) for each in ("lru", "rlt")]
            most = [f"{goodput(trace, *rule, each):.1f}" for each in ("lru", "rlt")]
            lines.append(
                f"| {trace} | {rule_name(*rule)} | {qps:g} | {hits[0]} | {hits[1]} | {on_time[0]} | {on_time[1]} "
                f"| {most[0]} | {most[1]} |"
            )
    return "\n".join(lines)


def _number(row: Row, name: str) -> float:
    value = row[name]
    if not isinstance(value, int | float):
        raise TypeError(f"{name} is {value!r}, not a number")
    return float(value)
