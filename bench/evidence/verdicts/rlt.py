"""The RLT paper's claims on eviction."""

from __future__ import annotations

from typing import Any

from bench.evidence.chapters.capacity.eviction import (
    PAPER,
    cycle_tokens,
    goodput,
    hit_changes,
    hit_share,
    loops,
    nearest_size,
)
from bench.evidence.measure.routing.rlt import PAPER_TOKENS, RULES, TRACE_LOADS
from bench.evidence.verdicts.verdict import Judged, judged, reaches


def claims() -> dict[str, Any]:
    """Return all claims by name."""
    return {
        "table_3": table_3(),
        "random_order": random_order(),
        "theorem_4": theorem_4(),
        "theorem_6": theorem_6(),
        "traces": traces(),
    }


def table_3() -> Judged:
    """Hits when groups alternate, at the paper's cache size and where leaf-LRU is closest to the paper."""
    at_paper, near = (
        [hit_share("round_robin", tokens, name) for name in ("lru", "rlt")] for tokens in (PAPER_TOKENS, nearest_size())
    )
    return {
        "tokens": PAPER_TOKENS,
        "paper": list(PAPER.values()),
        "at_paper": at_paper,
        "near_tokens": nearest_size(),
        "near": near,
        "cycle": cycle_tokens(),
        "verdict": judged(
            reproduced=reaches(at_paper[1] / at_paper[0], PAPER["rlt"] / PAPER["lru"]),
            partly=near[1] > 5 * near[0] and abs(at_paper[1] - PAPER["rlt"]) < 0.02,
        ),
    }


def random_order() -> Judged:
    """Hits when groups send requests in random order."""
    lru, rlt = (hit_share("random", PAPER_TOKENS, name) for name in ("lru", "rlt"))
    return {
        "tokens": PAPER_TOKENS,
        "found": [lru, rlt],
        "verdict": judged(reproduced=rlt > 1.05 * lru, partly=rlt > lru),
    }


def theorem_4() -> Judged:
    """Leaf-LRU's misses in the proof's loop."""
    met = all(row["lru"] == row["capacity"] - row["length"] + 1 and row["opt"] == 1 for row in loops())
    return {"loops": loops(), "verdict": judged(reproduced=met)}


def theorem_6() -> Judged:
    """RLT's misses in the same loop against the bound."""
    rows = loops()
    return {
        "bounds": [row["bound"] for row in rows],
        "found": [row["rlt"] for row in rows],
        "verdict": judged(reproduced=all(row["rlt"] <= row["bound"] * row["opt"] for row in rows)),
    }


def traces() -> Judged:
    """Hits on both traces."""
    changes = hit_changes()
    gains = [goodput(trace, *rule, "rlt") - goodput(trace, *rule, "lru") for trace in TRACE_LOADS for rule in RULES]
    verdict = judged(reproduced=min(changes) > 0.01, partly=max(changes) > 0.01)
    return {"points": [100 * change for change in changes], "gains": gains, "verdict": verdict}
