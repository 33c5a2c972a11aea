"""The predicted gain of a switch, against the gain of the switch, on fleets whose engines the audit does not know."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import pytest

from controlplane.router_audit.audit import AuditResult, audited
from controlplane.router_audit.audited_fleet import audited_fleet
from controlplane.router_audit.engine_fit import fitted_engine
from controlplane.router_audit.log_files import read_log
from controlplane.router_audit.rebuild import Assumptions
from planning.router_audit.logged_request import RequestLog
from routing.policy.policy_document import RoutingPolicy
from simulator.engine_models.engine_profile import EngineProfile
from simulator.runs.simulation_run import RunSpec, run
from simulator.workloads.prepared_workload import Workload
from simulator.workloads.trace import TraceRow
from tests.controlplane.router_audit.logs import conversations, served, write_log

REAL = EngineProfile(
    prefill_base_s=0.02,
    prefill_per_token_s=0.11e-3,
    prefill_per_token_squared_s=3e-9,
    num_blocks=700,
    recompute_last_block=True,
    max_batched_tokens=4096,
)
"""Slower engines with smaller caches than the audit starts from."""


def result_of(path: Path, engines: int) -> AuditResult:
    log = RequestLog()
    read_log(log, path, "mooncake")
    fleet = audited_fleet(log.requests(), str(engines))
    start = Assumptions(name="start", profile=EngineProfile(recompute_last_block=True), engine_model="chunked")
    fit = fitted_engine(fleet, start, "round_robin", given=False, on_step=lambda: None)
    return audited(fleet, fit, "round_robin", lambda: None)


def mean_after_switch(rows: list[TraceRow]) -> float:
    policy = RoutingPolicy(
        prefill_cost=REAL.prefill_cost, decode_cost=REAL.decode_cost, max_wait_s=3600.0, queue_limit=1_000_000
    )
    spec = RunSpec(policy=policy, engines=4, engine_model="chunked", profile=REAL)
    return fmean(record.ttft_s or 0.0 for record in run(spec, Workload(rows)).history)


@pytest.mark.parametrize(
    ("rule", "outcomes"), [("round_robin", True), ("round_robin", False), ("sglang_cache_aware", True)]
)
def test_the_range_of_the_gain_covers_the_gain_of_the_switch(rule: str, outcomes: bool, tmp_path: Path) -> None:
    rows = conversations(400, gap_ms=260)
    records = served(rows, rule, REAL)
    before_s = fmean(record.ttft_s or 0.0 for record in records)
    gain_s = before_s - mean_after_switch(rows)
    result = result_of(write_log(tmp_path / "log.jsonl", rows, records, outcomes=outcomes), 4)
    assert result.gain_s.low <= gain_s <= result.gain_s.high
    if rule == "round_robin":
        assert result.gain_s.low > 0
    if outcomes:
        assert abs(result.gain_s.value - gain_s) < 0.1 * before_s
        assert abs(result.miss_s or 0.0) < 0.1 * before_s
