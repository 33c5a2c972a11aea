"""Figures: bounds that no rule can exceed."""

from __future__ import annotations

from typing import Any

from bench.evidence.chapters.setting import infinite_hit_rate
from bench.evidence.measure.capacity.limits import CACHES, LOADS
from bench.evidence.store import load


def figures() -> dict[str, Any]:
    """Return the figures of the text."""
    result = load("limits")
    caches = [
        {
            "name": cache,
            "found": [
                result.number("hit_rate", trace=trace, cache=cache, eviction=eviction)
                for trace in LOADS
                for eviction in ("lru", "belady")
            ],
        }
        for cache in CACHES
    ]
    bounds = [
        {"qps": qps, "share": result.number("share", trace="conversation", kind="on_time", qps=float(qps))}
        for qps in LOADS["conversation"]
    ]
    service = [result.find(trace=trace, kind="service") for trace in LOADS]
    return {
        "caches": caches,
        "infinite": [infinite_hit_rate(trace) for trace in LOADS],
        "service": [[row["p50_s"], row["p90_s"]] for row in service],
        "bounds": bounds,
    }
