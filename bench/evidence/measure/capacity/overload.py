"""Rejecting SLO-infeasible requests at once (Mooncake §4.1), and the decode-bottleneck correction (DualMap A.8)."""

from __future__ import annotations

from statistics import fmean

import msgspec

from bench.evidence.cells import run_all, settings
from bench.evidence.store import Result, Row, measured
from bench.evidence.traces import WARMUP, workload
from routing.policy.admission_document import AdmissionDocument
from routing.policy.policy_document import Parameter, Stage
from simulator.runs.run_report import RunReport, report_of
from simulator.runs.simulation_run import RunSpec, evaluation_policy, run
from simulator.workloads.prepared_workload import Workload

TRACE = "conversation"
PAST_SATURATION_QPS = 14.0
SEEDS = range(5)
"""Seeds of block keys, which break ties differently. At the edge of saturation, that alone moves shares by a point."""
ORDERS = ("fifo", "late_last", "slack")
CONTENTION_QPS = 8.0
AFTER_S = 3.0
"""DualMap's T."""
RULES: dict[str, tuple[str, dict[str, Parameter]]] = {
    "dual_map": ("dual_map", {}),
    "dual_map_fixed": ("dual_map", {"rebalance": False, "adaptive_key": False}),
    "least_cost": ("least_cost", {}),
}


class Asked(msgspec.Struct, frozen=True):
    """One run: rejection of SLO-infeasible requests under an order, or the correction on co-located engines."""

    kind: str
    rule: str
    order: str
    on: bool


def measure_one(asked: Asked) -> Row:
    """Run one cell and return its row."""
    placement, params = RULES[asked.rule]
    policy = evaluation_policy(Stage(name=placement, params=params), Stage(name=asked.order))
    infeasible = asked.kind == "infeasible"
    if infeasible:
        policy = msgspec.structs.replace(policy, admission=AdmissionDocument(reject_infeasible=asked.on))
    else:
        policy = msgspec.structs.replace(policy, bottleneck_s=AFTER_S if asked.on else 0.0)
    qps, model = (PAST_SATURATION_QPS, "reference") if infeasible else (CONTENTION_QPS, "colocated")
    reports = [_report(RunSpec(policy=policy, qps=qps, warmup=WARMUP, engine_model=model, seed=n)) for n in SEEDS]
    shares = [report.slo_share for report in reports]
    return {
        **msgspec.to_builtins(asked),
        "qps": qps,
        "engine_model": model,
        "slo_share": fmean(shares),
        "slo_share_by_seed": [*shares],
        "slo_token_share": fmean(report.slo_token_share for report in reports),
        "ttft_p50_s": fmean(report.ttft_p50_s or 0.0 for report in reports),
        "ttft_p99_s": fmean(report.ttft_p99_s or 0.0 for report in reports),
        "rejected": fmean(report.rejected for report in reports),
    }


def _report(spec: RunSpec) -> RunReport:
    rows = workload(TRACE)
    salted = Workload(rows.rows, max_input=rows.max_input, seed=spec.seed)
    return report_of(spec, salted, run(spec, salted), 0.0)


def measure(jobs: int) -> Result:
    """Run both comparisons, each with and without the mechanism."""
    asked = [Asked("infeasible", "least_cost", order, on) for order in ORDERS for on in (False, True)]
    asked += [Asked("bottleneck", rule, "fifo", on) for rule in RULES for on in (False, True)]
    return measured(
        name="overload",
        settings={**settings(), "bottleneck_after_s": AFTER_S, "seeds": len(SEEDS)},
        rows=run_all(measure_one, asked, jobs=jobs, title="overload"),
    )
