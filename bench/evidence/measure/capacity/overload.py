"""Rejecting SLO-infeasible requests at once (Mooncake §4.1), and the decode-bottleneck correction (DualMap A.8)."""

from __future__ import annotations

from statistics import fmean

import msgspec

from bench.evidence.cells import run_all, settings
from bench.evidence.store import Result, Row, measured
from bench.evidence.traces import WARMUP, workload
from routing.policy.admission_document import AdmissionDocument
from routing.policy.policy_document import Stage
from simulator.runs.run_report import RunReport, report_of
from simulator.runs.simulation_run import RunSpec, evaluation_policy, run
from simulator.workloads.prepared_workload import Workload

TRACE = "conversation"
PAST_SATURATION_QPS = 14.0
SEEDS = range(5)
"""Seeds of block keys, which break ties differently. At the edge of saturation, that alone moves shares by a point."""
ORDERS = ("fifo", "late_last", "slack")
CONTENTION = ((6.5, 1), (7.5, 1), (8.0, 1), (3.0, 4), (3.25, 4))
"""Requests per second, and how many times as long answers are as in the trace."""
CONTENTION_SEEDS = range(21, 26)
AFTER_S = 3.0
"""DualMap's T."""


class Asked(msgspec.Struct, frozen=True):
    """One run: rejection of SLO-infeasible requests under an order, or the correction on co-located engines."""

    kind: str
    rule: str
    order: str
    on: bool
    qps: float = PAST_SATURATION_QPS
    answers: int = 1


def measure_one(asked: Asked) -> Row:
    """Run one cell and return its row."""
    policy = evaluation_policy(Stage(name=asked.rule), Stage(name=asked.order))
    infeasible = asked.kind == "infeasible"
    if infeasible:
        policy = msgspec.structs.replace(policy, admission=AdmissionDocument(reject_infeasible=asked.on))
    else:
        policy = msgspec.structs.replace(policy, bottleneck_s=AFTER_S if asked.on else 0.0)
    model, seeds = ("reference", SEEDS) if infeasible else ("colocated", CONTENTION_SEEDS)
    spec = RunSpec(policy=policy, qps=asked.qps, warmup=WARMUP, engine_model=model)
    reports = [_report(msgspec.structs.replace(spec, seed=seed), asked.answers) for seed in seeds]
    shares = [report.slo_share for report in reports]
    return {
        **msgspec.to_builtins(asked),
        "engine_model": model,
        "slo_share": fmean(shares),
        "slo_share_by_seed": [*shares],
        "slo_token_share": fmean(report.slo_token_share for report in reports),
        "ttft_p50_s": fmean(report.ttft_p50_s or 0.0 for report in reports),
        "ttft_p99_s": fmean(report.ttft_p99_s or 0.0 for report in reports),
        "rejected": fmean(report.rejected for report in reports),
    }


def _report(spec: RunSpec, answers: int) -> RunReport:
    trace = workload(TRACE)
    rows = [msgspec.structs.replace(row, output_length=answers * row.output_length) for row in trace.rows]
    salted = Workload(rows, max_input=trace.max_input, seed=spec.seed)
    return report_of(spec, salted, run(spec, salted), 0.0)


def measure(jobs: int) -> Result:
    """Run both comparisons, each with and without the mechanism."""
    asked = [Asked("infeasible", "least_cost", order, on) for order in ORDERS for on in (False, True)]
    asked += [Asked("bottleneck", "dual_map", "fifo", on, *load) for load in CONTENTION for on in (False, True)]
    seeds = {"seeds": len(SEEDS), "bottleneck_seeds": [*CONTENTION_SEEDS]}
    return measured(
        name="overload",
        settings={**settings(), "bottleneck_after_s": AFTER_S, **seeds},
        rows=run_all(measure_one, asked, jobs=jobs, title="overload"),
    )
