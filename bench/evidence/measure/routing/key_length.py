"""The length of adaptive keys (DualMap A.2.1, Fig. 6)."""

from __future__ import annotations

from collections import Counter

from bench.evidence.cells import settings
from bench.evidence.store import Result, Row, measured
from bench.evidence.traces import whole_trace
from routing.rings.prefix_hotness import PrefixHotness

WINDOW = 1000


def lengths(trace: str, engines: int) -> Counter[int]:
    """Return the number of requests of the whole trace by the length of their key in blocks."""
    hotness = PrefixHotness(window=WINDOW)
    return Counter(hotness.observe(tuple(row.hash_ids), engines) for row in whole_trace(trace))


def measure(jobs: int) -> Result:
    """Count the lengths for fleets of three sizes."""
    rows: list[Row] = []
    for trace in ("conversation", "toolagent_like"):
        for engines in (8, 16, 32):
            counted = lengths(trace, engines)
            total = sum(counted.values())
            shares = {str(blocks): count / total for blocks, count in sorted(counted.items())}
            rows.append({"trace": trace, "engines": engines, "requests": total, "shares": shares})
    return measured(
        name="key_length",
        settings={"window": WINDOW, "least_blocks": 2, "traces": settings()["traces"], "rows": "whole traces"},
        rows=rows,
    )
