"""Figures: the settings of the simulations."""

from __future__ import annotations

from typing import Any

from bench.evidence.store import load
from bench.evidence.traces import MAX_INPUT, TRACES, WARMUP
from routing.values.load_cv import TIME_CONSTANT_S


def infinite_hit_rate(trace: str) -> float:
    """Return the hit rate of an infinite cache, which no router can exceed."""
    return load("limits").number("hit_rate", trace=trace, kind="hits", cache="infinite")


def figures() -> dict[str, Any]:
    """Return the figures of the text."""
    traces = [
        {"name": trace, "file": file, "rows": rows, "hit_rate": infinite_hit_rate(trace)}
        for trace, (file, rows) in TRACES.items()
    ]
    return {"max_input": MAX_INPUT, "warmup": WARMUP, "traces": traces, "cv_s": TIME_CONSTANT_S}
