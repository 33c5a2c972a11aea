"""In-flight work of each engine over time (DualMap Figs. 8 and 11)."""

from __future__ import annotations

from bench.evidence.cells import Cell, run_all, run_cell, settings
from bench.evidence.store import Result, Row, measured

RULES = (
    ("cache_affinity", "fifo"),
    ("least_loaded", "fifo"),
    ("min_ttft", "fifo"),
    ("preble", "fifo"),
    ("dual_map", "fifo"),
    ("least_cost", "fifo"),
)
LOADS = {"conversation": 10.0, "toolagent_like": 18.0}
STEP_S = 5
"""Seconds of samples reduced to one, the highest."""


def measure(jobs: int) -> Result:
    """Run each rule at one load and keep the in-flight work of each engine."""
    cells = [
        Cell(trace=trace, placement=placement, order=order, qps=qps, series=True)
        for trace, qps in LOADS.items()
        for placement, order in RULES
    ]
    rows = [_thinned(row) for row in run_all(run_cell, cells, jobs=jobs, title="pending")]
    return measured(
        name="pending",
        settings=settings() | {"step_s": STEP_S, "series": "in flight prompt tokens per engine"},
        rows=rows,
    )


def _thinned(row: Row) -> Row:
    series = row.pop("series")
    steps = [series[start : start + STEP_S] for start in range(0, len(series), STEP_S)]
    peaks = [[max(values) for values in zip(*(tokens for _, tokens in step), strict=True)] for step in steps]
    return {
        "trace": row["trace"],
        "placement": row["placement"],
        "order": row["order"],
        "qps": row["qps"],
        "peaks": peaks,
    }
