"""Figures: LBGR and RLT on generated shared prefixes (LBGR paper §5, App. B)."""

from __future__ import annotations

from functools import partial
from math import log
from statistics import fmean
from typing import Any

from bench.evidence.measure.routing.shared_prefix import (
    BATCH_RULES,
    BATCH_SPEED,
    BATCH_SWEEPS,
    DECAY_MS,
    DECAY_SPEEDS,
    PAPER,
    QUEUES_KEPT,
    RULES,
    SPEED,
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
"""Median TTFT above which a fleet has a persistent queue."""
_HALF_LIFE_S = Lbgr().decay_interval_s * log(2) / -log(Lbgr().decay)
"""Half-life of LBGR's load estimate, with the paper's constants."""
SWEEP_VALUES: dict[str, tuple[float, ...]] = {
    **{kind: values for kind, (_, values) in (SWEEPS | BATCH_SWEEPS).items()},
    "decay": tuple(float(item) for item in DECAY_MS),
}
_DRAWN = (*PAPER, QUEUES_KEPT, "min_ttft + RLT", "least_cost + LRU")


def by_seed(name: str, kind: str, rule: str, value: float = 0.0, speed: int | None = None) -> list[float]:
    """Return a figure of a rule at one value of the varied parameter, for each seed."""
    rows = load("shared_prefix").where(kind=kind, rule=rule)
    values = [row[name] for row in rows if row["value"] == value and speed in (None, row["tokens_per_s"])]
    if not values:
        raise LookupError(f"shared_prefix: no {kind} of {rule} at {value}; measure it again")
    return values


def mean(name: str, kind: str, rule: str, value: float = 0.0, speed: int | None = None) -> float:
    """Return the mean over the seeds."""
    return fmean(by_seed(name, kind, rule, value, speed))


def seconds(times: list[float]) -> str:
    """Return one time if the seeds agree, else the lowest and the highest."""
    low, high = min(times), max(times)
    return f"{low:.2f} to {high:.2f} s" if high > 2 * low else f"{fmean(times):.2f} s"


def ttft(rule: str, speed: int) -> float:
    """Return the median TTFT (s) in Table 2's setting with engines of this speed."""
    return mean("ttft_p50_s", "table", rule, speed)


def hits(rule: str, speed: int) -> float:
    """Return the share of prompt tokens that were hits in Table 2's setting."""
    return mean("hit_rate", "table", rule, speed)


def paper_speed() -> int:
    """Return the measured speed at which cache-aware + LRU comes closest to the paper's median."""
    return min(TABLE_SPEEDS, key=lambda speed: abs(ttft("cache-aware + LRU", speed) - PAPER_TTFT["cache-aware + LRU"]))


def figures() -> dict[str, Any]:
    """Return the figures of the text."""
    fit, best = paper_speed(), TABLE_SPEEDS[-1]
    speeds = sorted({fit, 7000, 7500})
    medians = {speed: by_seed("ttft_p50_s", "table", "LBGR + RLT", speed) for speed in TABLE_SPEEDS}
    return {
        "seeds": TABLE_SEEDS,
        "fit": fit,
        "best": best,
        "speeds": speeds,
        "rows": [_row(rule, speeds) for rule in RULES],
        "base_hits": hits("cache-aware + LRU", best),
        "ours_hits": hits("LBGR + RLT", best),
        "paper_base_hits": PAPER_HITS["cache-aware + LRU"],
        "paper_ours_hits": PAPER_HITS["LBGR + RLT"],
        "half_life": _HALF_LIFE_S,
        "luck": [
            {"speed": speed, "ttft": seconds(times)}
            for speed, times in medians.items()
            if min(times) < KEEPS_UP_S < max(times)
        ],
        "standing": seconds(by_seed("ttft_p50_s", "table", QUEUES_KEPT, fit)),
        "speed": SPEED,
        "decay": [mean("ttft_p50_s", "decay", "LBGR + RLT", ms, SPEED) for ms in (10.0, 20.0, 80.0)],
        "least_cost": {"ttft": ttft("least_cost + LRU", fit), "hits": hits("least_cost + LRU", fit)},
        "batch_speed": BATCH_SPEED,
        "decay_speed": DECAY_SPEEDS[0],
    }


def _row(rule: str, speeds: list[int]) -> dict[str, Any]:
    medians = [
        {
            "ttft": seconds(by_seed("ttft_p50_s", "table", rule, speed)),
            "hits": hits(rule, speed),
            "throughput": mean("throughput_rps", "table", rule, speed),
        }
        for speed in speeds
    ]
    return {
        "rule": rule,
        "paper_ttft": PAPER_TTFT.get(rule),
        "paper_hits": PAPER_HITS.get(rule),
        "speeds": medians,
    }


def draw() -> None:
    """Draw both figures over the speed of the engines, and over the paper's varied parameters."""
    plots.over_speed(
        _DRAWN,
        TABLE_SPEEDS,
        lambda rule, speed: ttft(rule, int(speed)),
        lambda rule, speed: 100 * hits(rule, int(speed)),
        {name: PAPER_TTFT[name] for name in ("cache-aware + LRU", "LBGR + RLT")},
        "shared_prefix",
    )
    for name in ("ttft_p50_s", "hit_rate"):
        _sweeps(name)


def _sweeps(name: str) -> None:
    share = name == "hit_rate"

    def point(kind: str, rule: str, value: float) -> float:
        speed = DECAY_SPEEDS[0] if kind == "decay" else None
        return mean(name, kind, rule, value, speed) * (100 if share else 1)

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
    plots.sweeps(shown, "hit tokens, %" if share else "TTFT p50, s", file, log=not share)
