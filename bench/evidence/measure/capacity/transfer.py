"""Mean time to first token with and without blocks from other engines (Mooncake §4.2, Fig. 5; §7.4.2, Fig. 21a)."""

from __future__ import annotations

import msgspec

from bench.evidence.cells import Cell, names_of, run_all, settings, spec_of
from bench.evidence.store import Result, Row, measured
from bench.evidence.traces import workload
from simulator.runs.run_report import report_of
from simulator.runs.simulation_run import run

LOADS = {"conversation": (6.0, 8.0, 9.0, 10.0, 11.0), "toolagent_like": (12.0, 14.0, 16.0, 18.0, 19.0)}
RULES = ("random", "least_loaded", "min_ttft", "mooncake")
"""The four rules of Fig. 5: random, load balancing, local cache aware, global cache aware."""
BANDWIDTHS_GBPS = (1.0, 3.0, 6.0, 12.0, 24.0, 50.0, 100.0, 200.0, 400.0)
BANDWIDTH_LOADS = {"conversation": 10.0, "toolagent_like": 18.0}
USUAL_GBPS = 100.0


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One run, and the bandwidth of each engine as a sender."""

    cell: Cell
    gbps: float = USUAL_GBPS
    kind: str = "load"


def measure(jobs: int) -> Result:
    """Run every rule at every load, and the transferring rule at every bandwidth."""
    asked = [
        Asked(cell=Cell(trace=trace, placement=placement, qps=qps))
        for trace, loads in LOADS.items()
        for placement in RULES
        for qps in loads
    ] + [
        Asked(
            cell=Cell(trace=trace, placement="mooncake", placement_params={"bandwidth_gbps": gbps}, qps=qps),
            gbps=gbps,
            kind="bandwidth",
        )
        for trace, qps in BANDWIDTH_LOADS.items()
        for gbps in BANDWIDTHS_GBPS
    ]
    return measured(
        name="transfer",
        settings=settings() | {"gbps": USUAL_GBPS},
        rows=run_all(measure_one, asked, jobs=jobs, title="transfer"),
    )


def measure_one(asked: Asked) -> Row:
    """Run one case. Both the links and the rule's estimate use its bandwidth."""
    spec, rows = spec_of(asked.cell), workload(asked.cell.trace)
    profile = msgspec.structs.replace(spec.profile, link_bytes_per_s=asked.gbps * 1e9 / 8)
    spec = msgspec.structs.replace(spec, profile=profile)
    report = msgspec.to_builtins(report_of(spec, rows, run(spec, rows), 0.0))
    kept = ("slo_share", "ttft_p50_s", "ttft_p90_s", "ttft_mean_s", "token_hit_rate", "transferred_tokens")
    row: Row = {"kind": asked.kind, "gbps": asked.gbps}
    return row | names_of(asked.cell) | {name: report[name] for name in kept}
