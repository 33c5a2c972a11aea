"""Time from arrival to the last token on engines that also decode (DualMap §4.2, Fig. 4)."""

from __future__ import annotations

from bench.evidence.cells import Cell, run_all, run_cell, settings
from bench.evidence.store import Result, Row, measured

RULES = ("cache_affinity", "least_loaded", "min_ttft", "preble", "dual_map", "least_cost")
LOADS = {"conversation": (6.0, 7.0, 7.5), "toolagent_like": (12.0, 13.0, 14.0)}
"""Loads up to which the best rules hold the SLO with decodes and prefills on one engine, in requests/s."""


def measure_one(cell: Cell) -> Row:
    """Run one cell and keep its end-to-end times."""
    row = run_cell(cell)
    kept = ("trace", "placement", "qps", "engine_model", "slo_share", "ttft_p50_s", "ttft_p90_s")
    return {name: row[name] for name in (*kept, "e2e_p50_s", "e2e_p90_s", "token_hit_rate")}


def measure(jobs: int) -> Result:
    """Run every rule at every load."""
    cells = [
        Cell(trace=trace, placement=placement, qps=qps, engine_model="colocated")
        for trace, loads in LOADS.items()
        for placement in RULES
        for qps in loads
    ]
    return measured(
        name="end_to_end",
        settings=settings() | {"engine_model": "colocated"},
        rows=run_all(measure_one, cells, jobs=jobs, title="end to end"),
    )
