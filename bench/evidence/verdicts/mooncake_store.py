"""Mooncake's claims about its store: capacity and sharing (§7.3.1–2), hints and tiers (§5.2), layers (§7.4.3)."""

from __future__ import annotations

from itertools import pairwise
from statistics import median
from typing import Any

from bench.evidence.measure.capacity.effective_capacity import (
    CACHED,
    COPY_ENGINES,
    COPY_RATES,
    MOONCAKE,
    RANKS,
    SYSTEMS,
    TBT_S,
)
from bench.evidence.measure.capacity.effective_capacity import RATES as QPS
from bench.evidence.measure.capacity.kv_store import (
    CAPACITIES,
    DECODED,
    ENGINES,
    LENGTHS,
    LOCAL_TOKENS,
    MIX_REQUESTS,
    MIX_SSD_TIMES,
    POOLED_TOKENS,
    RATES,
    RATIOS,
    SEQUENCES,
    STAGES,
    STRATEGIES,
)
from bench.evidence.store import load
from bench.evidence.verdicts.verdict import Judged, judged, near, reaches

NAMES = {"conversation": "conversation", "toolagent_like": "tool & agent", "both": "both"}
NEARLY_ALL, HALF = 0.95, 0.5
"""Shares of the highest hit rate: the pool must reach the first, one machine's memory must stay below the second."""
_SHARED = 2.36
"""The maximum of hits with a shared store over those with separate memories in Fig. 17."""
_TIERS = 52 / 27
"""The hierarchy's hits over plain LRU's in Fig. 19."""
JUDGED_TBT_S = 0.2
EFFECTIVE = {"conversation": (1.59, 5.98), "toolagent_like": (1.42,)}
"""Effective capacity over the baselines: the abstract's range, and that over prefix caching (§7.2.2)."""
HIDDEN = 0.05
"""Maximum share of the time to first token that a transfer can take after the prefill."""


def claims() -> dict[str, Any]:
    """Return all claims by name."""
    return {
        "capacity": capacity(),
        "sharing": sharing(),
        "hints": hints(),
        "layers": layers(),
        "pipeline": pipeline(),
        "effective": {trace: effective(trace) for trace in EFFECTIVE},
        "copies": copies(),
    }


def effective(trace: str) -> Judged:
    """Requests within both objectives, Mooncake over the others, with TBT under 200 ms (Figs. 1 and 13).

    Conversation is *reproduced* if the least and the greatest ratio are near the paper's 1.59 and 5.98, tool & agent if
    the ratio over prefix caching is near 1.42; *partly* if Mooncake is more than 3 % ahead of all, or of that one.
    """
    rows = {system: load("effective_capacity").find(kind="capacity", trace=trace, system=system) for system in SYSTEMS}
    limit = TBT_S.index(JUDGED_TBT_S)
    others = [system for system in SYSTEMS if system != MOONCAKE]
    over = {
        name: [rows[MOONCAKE][name][limit] / max(rows[other][name][limit], 1e-3) for other in others]
        for name in ("longest_tenth", "mean")
    }
    paper, ratios = EFFECTIVE[trace], over["longest_tenth"]
    judged_ratios = [min(ratios), max(ratios)] if len(paper) == 2 else [ratios[others.index(CACHED)]]
    return {
        "qps": QPS[trace],
        "others": others,
        "shares": {name: [rows[system][name] for system in SYSTEMS] for name in ("longest_tenth", "mean")},
        "over": over,
        "paper": paper,
        "verdict": judged(
            reproduced=all(near(one, theirs) for one, theirs in zip(judged_ratios, paper, strict=True)),
            partly=min(judged_ratios) > 1.03,
        ),
    }


def copies() -> Judged:
    """Copies of the blocks at ranks 10 and 100, in the second half of the samples (Fig. 18).

    "Almost every instance" is at least three quarters of the engines. It is *reproduced* if the median is that at both
    ranks on both traces; *partly* if at one.
    """
    ratios = {}
    for trace in COPY_RATES:
        series = load("effective_capacity").find(kind="copies", trace=trace)["copies"]
        ratios[trace] = [median(line[len(line) // 2 :]) for line in series]
    hot = [line[rank] >= 0.75 * COPY_ENGINES for line in ratios.values() for rank in (0, 1)]
    return {
        "engines": COPY_ENGINES,
        "ranks": RANKS,
        "found": [ratios[trace] for trace in COPY_RATES],
        "verdict": judged(reproduced=all(hot), partly=any(hot)),
    }


def capacity() -> Judged:
    """Hits of one machine's memory and of the pool, relative to an unbounded cache."""
    shares = {
        tokens: [
            load("kv_store").number("hit_rate", kind="capacity", name=name, number=tokens)
            / load("kv_store").number("hit_rate", kind="capacity", name=name, number=CAPACITIES[-1])
            for name in SEQUENCES
        ]
        for tokens in (LOCAL_TOKENS, POOLED_TOKENS)
    }
    local, pooled = shares[LOCAL_TOKENS], shares[POOLED_TOKENS]
    below, near = sum(item < HALF for item in local), sum(item >= NEARLY_ALL for item in pooled)
    return {
        "names": [NAMES[name] for name in SEQUENCES],
        "local": local,
        "pooled": pooled,
        "verdict": judged(reproduced=2 * below > len(local) and near == len(pooled), partly=near == len(pooled)),
    }


def sharing() -> Judged:
    """Hits and prefill time with a shared store, relative to separate memories."""
    gains = []
    for trace in RATES:
        own, shared = (load("kv_store").find(kind="sharing", name=trace, number=number) for number in (0, 1))
        gains.append(
            {
                "name": NAMES[trace],
                "hits": [own["hit_rate"], shared["hit_rate"]],
                "more": shared["hit_rate"] / own["hit_rate"] - 1,
                "less": shared["prefill_mean_s"] / own["prefill_mean_s"] - 1,
            }
        )
    better = [item for item in gains if item["more"] > 0 and item["less"] < 0]
    return {
        "engines": ENGINES,
        "traces": gains,
        "verdict": judged(
            reproduced=len(better) == len(gains) and reaches(1 + max(item["more"] for item in gains), _SHARED),
            partly=len(better) == len(gains),
        ),
    }


def hints() -> Judged:
    """Hits of plain LRU, without ephemeral prompts, with SSD and pinned contexts, and of an unbounded store.

    All but the last have equal capacity. It is *reproduced* if the hierarchy's gain is near the paper's and the hits
    rise in this order; *partly* if the hierarchy has the most hits.
    """
    lru, filtered, tiers, most = (load("kv_store").number("hit_rate", kind="hints", name=item) for item in STRATEGIES)
    in_order = lru < filtered < tiers <= most
    return {
        "requests": MIX_REQUESTS,
        "ssd_times": MIX_SSD_TIMES,
        "hits": [lru, filtered, tiers, most],
        "more": tiers / lru - 1,
        "verdict": judged(reproduced=in_order and near(tiers / lru, _TIERS), partly=tiers > max(lru, filtered)),
    }


def layers() -> Judged:
    """The share of a long prompt's prefill saved by a cached prefix, and the remaining share of its transfer."""
    rows = {ratio: load("kv_store").find(kind="layers", number=float(LENGTHS[-1]), ratio=ratio) for ratio in RATIOS}
    none, cached = rows[RATIOS[0]], rows[RATIOS[-1]]
    left = max(row["transfer_left_s"] / row["ttft_s"] for row in load("kv_store").where(kind="layers") if row["ttft_s"])
    prefill, ttft = cached["prefill_s"] / none["prefill_s"] - 1, cached["ttft_s"] / none["ttft_s"] - 1
    return {
        "tokens": LENGTHS[-1],
        "lengths": [LENGTHS[0], LENGTHS[-1]],
        "decoded": DECODED,
        "prefill": prefill,
        "ttft": ttft,
        "parts": [[row["prefill_s"], row["transfer_left_s"], row["decode_s"]] for row in (none, cached)],
        "left": left,
        "transfer_s": none["transfer_s"],
        "verdict": judged(reproduced=prefill < -0.8 and ttft < -0.8 and left < HIDDEN, partly=prefill < -0.5),
    }


def pipeline() -> Judged:
    """TTFT of a long prompt over the number of nodes that compute it.

    It is *reproduced* if n nodes take at most 1 / (0.8 n) of the time of one, and a short prompt takes no longer on
    them; *partly* if each step to more nodes is faster.
    """
    rows = [load("kv_store").find(kind="pipeline", number=float(stages)) for stages in STAGES]
    long, short = ([row[name] for row in rows] for name in ("long_s", "short_s"))
    scales = all(seconds * 0.8 * stages <= long[0] for stages, seconds in zip(STAGES, long, strict=True))
    faster = all(more < fewer for fewer, more in pairwise(long))
    return {
        "tokens": LENGTHS[-1],
        "stages": STAGES,
        "long": long,
        "short": short,
        "verdict": judged(reproduced=scales and max(short) <= 1.01 * short[0], partly=faster),
    }
