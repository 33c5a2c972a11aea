"""Larger fleets under the same load per engine (DualMap A.4, Fig. 13a)."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from bench.evidence.cells import Cell, names_of, run_all, settings, spec_of
from bench.evidence.store import Result, Row, measured
from bench.evidence.traces import MAX_INPUT, trace_file
from simulator.runs.goodput import SHARE, LateWatch, largest
from simulator.runs.run_report import report_of
from simulator.runs.simulation_run import run
from simulator.workloads.prepared_workload import Workload

TRACE = "toolagent_like"
REQUESTS_PER_ENGINE = 1000
"""As in the paper, if the trace is long enough."""
POINTS = ((8, 22.0), (16, 44.0), (32, 88.0), (32, 96.0))
"""Engines, and the load at which all rules run, in requests/s."""
SIZES = (8, 16, 32)
STEP_PER_ENGINE = 0.02
"""Resolution of goodput per engine, requests/s."""
RULES = (
    ("cache_affinity", "fifo"),
    ("least_loaded", "fifo"),
    ("min_ttft", "fifo"),
    ("preble", "fifo"),
    ("sglang_cache_aware", "fifo"),
    ("dual_map", "fifo"),
    ("least_cost", "fifo"),
    ("least_cost", "slack"),
)
GUESS_PER_ENGINE = {"cache_affinity": 1.2, "preble": 2.2, "least_loaded": 2.3, "slack": 4.0}
"""First rate of the search for goodput, by placement or order, requests/s; 2.6 for the others."""


@lru_cache(maxsize=1)
def requests_for(engines: int) -> Workload:
    """Return the first rows of the trace for a fleet of this size."""
    return Workload.read(trace_file(TRACE), requests=REQUESTS_PER_ENGINE * engines, max_input=MAX_INPUT)


def measure(jobs: int) -> Result:
    """Run every rule at every point, and search its goodput at every size."""
    cells = [
        Cell(trace=TRACE, placement=placement, order=order, qps=qps, engines=engines)
        for engines, qps in POINTS
        for placement, order in RULES
    ]
    searches = [
        Cell(trace=TRACE, placement=placement, order=order, qps=engines * _guess(placement, order), engines=engines)
        for engines in SIZES
        for placement, order in RULES
    ]
    rows = run_all(at_one_load, cells, jobs=jobs, title="scale")
    rows += run_all(goodput, searches, jobs=jobs, title="scale, goodput")
    sizes = {str(engines): len(requests_for(engines)) for engines in SIZES}
    return measured(
        name="scale",
        settings=settings() | {"engines": list(SIZES), "requests": sizes, "step_per_engine": STEP_PER_ENGINE},
        rows=rows,
    )


def at_one_load(cell: Cell) -> Row:
    """Run one rule at one point."""
    spec, rows = spec_of(cell), requests_for(cell.engines)
    report = msgspec.to_builtins(report_of(spec, rows, run(spec, rows), 0.0))
    kept = ("requests", "slo_share", "ttft_p50_s", "ttft_p90_s", "token_hit_rate", "hit_rate_infinite")
    row: Row = {"kind": "load"}
    return row | names_of(cell) | {name: report[name] for name in kept}


def goodput(cell: Cell) -> Row:
    """Search for the largest rate with 90 % on time, starting at the cell's rate, in steps of the fleet's size."""
    spec, rows = spec_of(cell), requests_for(cell.engines)
    step = STEP_PER_ENGINE * cell.engines

    def passes(steps: int) -> bool:
        asked = msgspec.structs.replace(spec, qps=steps * step)
        simulation = run(asked, rows, LateWatch(len(rows), asked.warmup))
        over = not simulation.unfinished and len(simulation.history) == len(rows)
        return over and report_of(asked, rows, simulation, 0.0).slo_share >= SHARE

    row: Row = {"kind": "goodput"}
    row |= names_of(cell)
    del row["qps"]
    return row | {"goodput_qps": step * largest(passes, round(cell.qps / step))}


def _guess(placement: str, order: str) -> float:
    return GUESS_PER_ENGINE.get(order, GUESS_PER_ENGINE.get(placement, 2.6))
