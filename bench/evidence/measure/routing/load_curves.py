"""Every rule at every load: time to first token, on-time share, hits and balance (DualMap Figs. 1, 3, 4, 10)."""

from __future__ import annotations

from bench.evidence.cells import Cell, run_all, run_cell, settings
from bench.evidence.rules import FORGETTING
from bench.evidence.store import Result, measured

RULES = (
    ("round_robin", "fifo"),
    ("random", "fifo"),
    ("least_loaded", "fifo"),
    ("cache_affinity", "fifo"),
    ("min_ttft", "fifo"),
    ("mooncake", "fifo"),
    ("preble", "fifo"),
    ("sglang_cache_aware", "fifo"),
    ("dynamo_kv", "fifo"),
    ("dual_map", "fifo"),
    ("least_cost", "fifo"),
    ("least_cost", "late_last"),
    ("least_cost", FORGETTING),
    ("least_cost", "slack"),
    ("dual_map", "slack"),
    ("central", "late_binding"),
)
LOADS = {
    "conversation": (6, 8, 9, 10, 11, 12, 13, 14, 16),
    "toolagent_like": (4, 8, 12, 14, 16, 18, 19, 20, 22, 24, 27, 30),
}


def measure(jobs: int) -> Result:
    """Run every rule at every load."""
    cells = [
        Cell(trace=trace, placement=placement, order=order, qps=float(qps))
        for trace, loads in LOADS.items()
        for placement, order in RULES
        for qps in loads
    ]
    rows = run_all(run_cell, cells, jobs=jobs, title="load curves")
    return measured(
        name="load_curves",
        settings=settings(),
        rows=rows,
    )
