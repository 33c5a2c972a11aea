"""The cost of less knowledge: wrong configured costs, with and without learning, and old load reports."""

from __future__ import annotations

import msgspec

from bench.evidence.cells import ENGINES, run_all, settings
from bench.evidence.rules import FORGETTING, order_stage
from bench.evidence.store import Result, Row, measured
from bench.evidence.traces import WARMUP, workload
from routing.policy.dispatch_limit_document import DispatchLimitDocument
from routing.policy.policy_document import PrefillCostDocument, Stage
from simulator.runs.run_report import report_of
from simulator.runs.simulation_run import RunSpec, evaluation_policy, run

TRACE = "conversation"
ORDERS = ("fifo", "slack")
WRITTEN = {
    "right": PrefillCostDocument(),
    "a quarter": PrefillCostDocument(
        base_s=0.0025, per_token_s=0.02e-3, per_token_squared_s=0.5e-9, per_hit_token_s=0.5e-6
    ),
    "flat": PrefillCostDocument(base_s=0.5, per_token_s=0, per_token_squared_s=0, per_hit_token_s=0),
}
"""The costs in the policy. `flat` is about right on average but ignores hits."""
COSTS = ("fixed", "fitted")
COST_QPS = (10.0, 12.0)
AGE_LOADS = {"reference": 11.0, "colocated": 8.0, "chunked": 10.0}
"""Engine model → requests/s at the edge of saturation."""
AGE_ORDERS = ("fifo", FORGETTING, "slack")
AGES_S = (0.0, 0.1, 0.2, 0.3, 0.5, 1.0, 5.0)
GOOD_FOR_S = DispatchLimitDocument().report_ttl_s
ANY_S = 60.0
"""Maximum age of a usable report: the policy's limit, or unlimited."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    kind: str
    order: str
    qps: float
    written: str = "right"
    cost: str = "fixed"
    engine_model: str = "reference"
    age_s: float = 0.0
    good_for_s: float = GOOD_FOR_S


def measure_one(asked: Asked) -> Row:
    """Run one setting and return its row."""
    base = evaluation_policy(Stage(name="least_cost"), order_stage(asked.order, {}))
    policy = msgspec.structs.replace(
        base,
        prefill_cost=WRITTEN[asked.written],
        cost=asked.cost,
        dispatch_limit=msgspec.structs.replace(base.dispatch_limit, report_ttl_s=asked.good_for_s),
    )
    spec = RunSpec(
        policy=policy,
        engines=ENGINES,
        qps=asked.qps,
        warmup=WARMUP,
        engine_model=asked.engine_model,
        report_age_s=asked.age_s,
    )
    rows = workload(TRACE)
    report = report_of(spec, rows, run(spec, rows), 0.0)
    return {
        **msgspec.structs.asdict(asked),
        "slo_share": report.slo_share,
        "ttft_p90_s": report.ttft_p90_s,
        "token_hit_rate": report.token_hit_rate,
    }


def measure(jobs: int) -> Result:
    """Run every configured cost with and without learning, and every age of reports."""
    asked = [
        Asked(kind="cost", order=order, qps=qps, written=written, cost=cost)
        for qps in COST_QPS
        for order in ORDERS
        for written in WRITTEN
        for cost in COSTS
    ]
    asked += [
        Asked(kind="age", order=order, qps=qps, engine_model=model, age_s=age_s, good_for_s=good_for_s)
        for model, qps in AGE_LOADS.items()
        for order in AGE_ORDERS
        for age_s, good_for_s in (*((age_s, ANY_S) for age_s in AGES_S), (AGES_S[-1], GOOD_FOR_S))
    ]
    return measured(
        name="knowledge",
        settings=settings(),
        rows=run_all(measure_one, asked, jobs=jobs, title="knowledge"),
    )
