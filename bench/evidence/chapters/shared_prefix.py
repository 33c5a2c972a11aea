"""Chapter: LBGR and RLT on generated shared prefixes (LBGR paper §5, App. B)."""

from __future__ import annotations

from functools import partial
from math import log
from statistics import fmean

from bench.evidence.claims import percent
from bench.evidence.measure.shared_prefix import (
    BATCH_RULES,
    BATCH_SPEED,
    BATCH_SWEEPS,
    DECAY_MS,
    DECAY_SPEEDS,
    PAPER,
    RULES,
    SPEED,
    STANDING,
    SWEEPS,
    SWEPT,
    TABLE_SEEDS,
    TABLE_SPEEDS,
)
from bench.evidence.plots import shared_prefix as plots
from bench.evidence.store import load
from routing.placements.lbgr import Lbgr

PAPER_TTFT = {
    "cache-aware + LRU": 25.02,
    "cache-aware + RLT": 14.33,
    "LBGR + LRU": 2.96,
    "LBGR + RLT": 1.09,
}
"""Table 2: median of TTFT in seconds."""
PAPER_HITS = {
    "cache-aware + LRU": 0.2389,
    "cache-aware + RLT": 0.2636,
    "LBGR + LRU": 0.3333,
    "LBGR + RLT": 0.3731,
}
"""Table 2: hit tokens as a share of prompt tokens."""
KEEPS_UP_S = 1.0
"""Median TTFT above which a fleet has a queue that stands."""
_HALF_LIFE_S = Lbgr().decay_interval_s * log(2) / -log(Lbgr().decay)
"""Of the load by which LBGR routes, with the paper's constants."""
SWEEP_VALUES: dict[str, tuple[float, ...]] = {
    **{kind: values for kind, (_, values) in (SWEEPS | BATCH_SWEEPS).items()},
    "decay": tuple(float(each) for each in DECAY_MS),
}
_DRAWN = (*PAPER, STANDING, "min_ttft + RLT", "least_cost + LRU")


def figures(name: str, kind: str, rule: str, value: float = 0.0, speed: int | None = None) -> list[float]:
    """Return a figure of a rule at one value of what is varied, for each seed."""
    rows = load("shared_prefix").where(kind=kind, rule=rule)
    found = [
        float(str(row[name]))
        for row in rows
        if float(str(row["value"])) == value and speed in (None, row["tokens_per_s"])
    ]
    if not found:
        raise LookupError(f"shared_prefix: no {kind} of {rule} at {value}; measure it again")
    return found


def figure(name: str, kind: str, rule: str, value: float = 0.0, speed: int | None = None) -> float:
    """Return its mean over the seeds."""
    return fmean(figures(name, kind, rule, value, speed))


def seconds(found: list[float]) -> str:
    """Return times as one where the seeds agree, else as the least and the most."""
    low, high = min(found), max(found)
    return f"{low:.2f} to {high:.2f} s" if high > 2 * low else f"{fmean(found):.2f} s"


def ttft(rule: str, speed: int) -> float:
    """Return the median of TTFT (s) in Table 2's setting with engines of a speed."""
    return figure("ttft_p50_s", "table", rule, speed)


def hits(rule: str, speed: int) -> float:
    """Return the share of prompt tokens that were hits in Table 2's setting."""
    return figure("hit_rate", "table", rule, speed)


def paper_speed() -> int:
    """Return the speed at which cache-aware + LRU comes closest to the paper's median, of those measured."""
    return min(TABLE_SPEEDS, key=lambda speed: abs(ttft("cache-aware + LRU", speed) - PAPER_TTFT["cache-aware + LRU"]))


def text() -> str:
    """Return the chapter with its pictures and table."""
    fit = paper_speed()
    speeds = plots.over_speed(
        _DRAWN,
        TABLE_SPEEDS,
        lambda rule, speed: ttft(rule, int(speed)),
        lambda rule, speed: 100 * hits(rule, int(speed)),
        {name: PAPER_TTFT[name] for name in ("cache-aware + LRU", "LBGR + RLT")},
        "shared_prefix",
    )
    ttft_sweeps, hit_sweeps = (_sweeps(name) for name in ("ttft_p50_s", "hit_rate"))
    best = TABLE_SPEEDS[-1]
    medians = {speed: figures("ttft_p50_s", "table", "LBGR + RLT", speed) for speed in TABLE_SPEEDS}
    by_luck = [speed for speed, found in medians.items() if min(found) < KEEPS_UP_S < max(found)]
    luck = ", ".join(f"{speed:,} tokens/s {seconds(medians[speed])}" for speed in by_luck)
    decay = {ms: figure("ttft_p50_s", "decay", "LBGR + RLT", ms, SPEED) for ms in (10.0, 20.0, 80.0)}
    return f"""## LBGR and RLT on shared prefixes

The LBGR paper's main benchmark: 128 groups of 32 prompts of 512 to 8,192 tokens, half of each shared by its group, in random order at 12
requests/s on average; four engines with 200,000 cached tokens. Its GPUs are known to us only by what they reached, so
Table 2 is made for engines of several speeds, each with one prefill at a time and the same time for each token.
`cache-aware` is `sglang_cache_aware`, `LBGR` the placement `lbgr` with the paper's constants.

![TTFT and hits over the speed of the engines]({speeds})

{_table(fit)}

*TTFT is the median; mean of {TABLE_SEEDS} seeds, or the least and the most where they disagree. At {fit:,} tokens/s cache-aware +
LRU comes closest to the paper.*

Hits come out close to the paper's: {percent(hits("cache-aware + LRU", best))} for cache-aware + LRU and
{percent(hits("LBGR + RLT", best))} for LBGR + RLT at {best:,} tokens/s (paper: {percent(PAPER_HITS["cache-aware + LRU"])} and
{percent(PAPER_HITS["LBGR + RLT"])}). So do the times while the fleet keeps up. LBGR has two states: below saturation it is good, and
past it worse than what it replaces, for its load forgets a queue at a half-life of {_HALF_LIFE_S:.2f} s while the queue lasts for
seconds, and what it then sends to the wrong engines loses the hits that would have ended the queue. Between the two the seed
decides ({luck}); with slower engines no run recovers. At the speed that
gives the paper's baseline ours is past that edge; the paper's own figures lie before it.

`keep_standing`, a load that cannot forget requests without a first token, has no such state
({seconds(figures("ttft_p50_s", "table", STANDING, fit))} at {fit:,} tokens/s). A longer decay interval does almost the same, against
the paper's Fig. 14: at {SPEED:,} tokens/s the median is {decay[10.0]:.1f} s with 10 ms, {decay[20.0]:.1f} s with 20 and {decay[80.0]:.1f} s with 80.
`least_cost` needs neither learning nor RLT: {ttft("least_cost + LRU", fit):.1f} s and {percent(hits("least_cost + LRU", fit))} at {fit:,}.

**What the paper varies.** Median TTFT in seconds and hits in per cent over:

![Median TTFT over what the paper varies]({ttft_sweeps})

![Hits over what the paper varies]({hit_sweeps})

*Engines of {SPEED:,} tokens/s; for answer length and batch size continuous batching in chunks (`chunked`) at {BATCH_SPEED:,},
for the decay interval {DECAY_SPEEDS[0]:,}. LBGR + RLT and cache-aware + LRU are means of three
seeds (with `chunked` of one), the others are of one. Caches are what 50 to 90 % of a 48 GB GPU leave beside an 8B model.*

The paper's other benchmarks (ShareGPT, UltraChat, Loogle) are to be measured: App. A gives their lengths, which the generators have as
defaults. Its other models (70B, Mixtral; Figs. 2, 3, 8, 9) have no profile here. Groups that take turns stand for Loogle's round-robin
order (Fig. 4). Times that eviction and routing take are no subject of virtual time; `python -m bench.eviction` and `python -m
bench.decision` measure ours.
"""


def _sweeps(name: str) -> str:
    share = name == "hit_rate"

    def point(kind: str, rule: str, value: float) -> float:
        speed = DECAY_SPEEDS[0] if kind == "decay" else None
        return figure(name, kind, rule, value, speed) * (100 if share else 1)

    titles = {
        "rate": "requests/s (Fig. 5)",
        "workers": "engines (Fig. 6)",
        "cache": "cached tokens (Fig. 7)",
        "ratio": "shared part (Fig. 10)",
        "group": "prompts a group (Fig. 11)",
        "output": "answer tokens (Fig. 12)",
        "batch": "prompts at once (Fig. 13)",
        "decay": "decay interval, ms (Fig. 14)",
    }
    rules = dict.fromkeys(SWEEPS, SWEPT) | dict.fromkeys(BATCH_SWEEPS, BATCH_RULES) | {"decay": ("LBGR + RLT",)}
    shown = [
        plots.Sweep(title=title, values=SWEEP_VALUES[kind], rules=rules[kind], point=partial(point, kind))
        for kind, title in titles.items()
    ]
    file = "shared_prefix_hits" if share else "shared_prefix_ttft"
    return plots.sweeps(shown, "hit tokens, %" if share else "TTFT p50, s", file, log=not share)


def _table(fit: int) -> str:
    shown = sorted({fit, 7000, 7500})
    head = " | ".join(f"{speed:,} tokens/s: TTFT | hits | requests/s" for speed in shown)
    lines = [f"| rule | paper: TTFT | hits | {head} |", "|---|---:|---:|" + "---:|" * 3 * len(shown)]
    for rule in RULES:
        cells = [rule]
        cells += [f"{PAPER_TTFT[rule]:.2f} s", percent(PAPER_HITS[rule])] if rule in PAPER_TTFT else ["", ""]
        for speed in shown:
            throughput = figure("throughput_rps", "table", rule, speed)
            median = seconds(figures("ttft_p50_s", "table", rule, speed))
            cells += [median, percent(hits(rule, speed)), f"{throughput:.2f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
