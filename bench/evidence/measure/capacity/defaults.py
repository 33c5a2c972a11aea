"""The defaults of a new pool: orders that give up requests, on every engine model, and which requests become late."""

from __future__ import annotations

import msgspec

from bench.evidence.cells import Cell, names_of, run_all, search_cell, settings, spec_of
from bench.evidence.measure.capacity.scale import TRACE, requests_for
from bench.evidence.rules import FORGETTING
from bench.evidence.store import Result, Row, measured
from bench.evidence.traces import workload
from simulator.runs.run_report import report_of
from simulator.runs.simulation_run import run

RULES = (
    ("least_cost", "late_last"),
    ("least_cost", FORGETTING),
    ("least_cost", "slack"),
    ("central", "late_binding"),
)
SEARCHED = {
    ("conversation", "colocated"): 8.9,
    ("toolagent_like", "colocated"): 21.4,
    ("conversation", "chunked"): 11.0,
}
"""Trace and engine model → first rate of the search for goodput. `goodput` contains those of the reference model.

The longer trace on `chunked` engines is omitted: its search alone would take as long as all others.
"""
LOADS = {
    ("conversation", "reference"): 14.0,
    ("toolagent_like", "reference"): 27.0,
    ("conversation", "colocated"): 8.5,
    ("toolagent_like", "colocated"): 18.0,
    ("conversation", "chunked"): 10.5,
    ("toolagent_like", "chunked"): 20.0,
}
"""Loads beyond FIFO's collapse, where the orders differ, in requests/s."""
SEEDS = range(5)
"""`late_last` and its variant differ no more than tie-breaking does, so means over these seeds count."""
LARGE, LARGE_LOADS = 32, (96.0, 110.0)
PASSED_OVER_S = (3.0, 10.0, 30.0)
"""Starvation limits, which bound the lateness of the longest prompts."""


class Asked(msgspec.Struct, frozen=True):
    """One measurement of one rule: its `goodput`, its share on time at one `load`, or in one `large` fleet."""

    kind: str
    cell: Cell
    starvation_limit_s: float = 0.0


def measure_one(asked: Asked) -> Row:
    """Search a goodput, or run one load. Rows of the latter contain the share on time by prompt length."""
    cell = asked.cell
    row: Row = {"kind": asked.kind, "starvation_limit_s": asked.starvation_limit_s}
    if asked.kind == "goodput":
        return row | search_cell(cell)
    rows = requests_for(cell.engines) if asked.kind == "large" else workload(cell.trace, cell.seed)
    spec = spec_of(cell)
    policy = msgspec.structs.replace(spec.policy, starvation_limit_s=asked.starvation_limit_s)
    spec = msgspec.structs.replace(spec, policy=policy)
    report = report_of(spec, rows, run(spec, rows), 0.0)
    bands = msgspec.to_builtins(report)["detail"]["bands"]
    return (
        row
        | names_of(cell)
        | {
            "slo_share": report.slo_share,
            "slo_token_share": report.slo_token_share,
            "ttft_p50_s": report.ttft_p50_s,
            "ttft_p99_s": report.ttft_p99_s,
            "token_hit_rate": report.token_hit_rate,
            "bands": [[band["to_tokens"], band["slo_share"]] for band in bands],
        }
    )


def everything() -> list[Asked]:
    """Return all measurements: each rule on each engine model, in a large fleet, and under starvation limits."""
    asked = [
        Asked("goodput", Cell(trace=trace, placement=placement, order=order, qps=guess, engine_model=model))
        for (trace, model), guess in SEARCHED.items()
        for placement, order in RULES
    ]
    asked += [
        Asked("load", Cell(trace=trace, placement=placement, order=order, qps=qps, engine_model=model))
        for (trace, model), qps in LOADS.items()
        for placement, order in RULES
    ]
    asked += [
        Asked("load", Cell(trace=trace, placement=placement, order=order, qps=qps, engine_model=model, seed=seed))
        for (trace, model), qps in LOADS.items()
        for placement, order in RULES[:2]
        for seed in SEEDS[1:]
    ]
    asked += [
        Asked("large", Cell(trace=TRACE, placement=placement, order=order, qps=qps, engines=LARGE))
        for qps in LARGE_LOADS
        for placement, order in RULES
    ]
    asked += [
        Asked("load", Cell(trace="conversation", placement=placement, order=order, qps=14.0), bound_s)
        for placement, order in RULES[1:]
        for bound_s in PASSED_OVER_S
    ]
    return asked


def measure(jobs: int) -> Result:
    """Measure everything."""
    return measured(
        name="defaults",
        settings=settings() | {"large_engines": LARGE, "large_requests": len(requests_for(LARGE))},
        rows=run_all(measure_one, everything(), jobs=jobs, title="defaults"),
    )
