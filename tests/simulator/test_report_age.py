"""Tolerated age of engine load reports: the router counts its own dispatches, so reports matter little."""

from __future__ import annotations

from functools import cache

import msgspec
import pytest

from routing.policy.policy_document import Stage
from simulator.runs.run_report import report_of
from simulator.runs.simulation_run import RunSpec, evaluation_policy, run
from simulator.workloads.prepared_workload import Workload
from simulator.workloads.registry import generate_workload


@cache
def requests() -> Workload:
    return Workload(generate_workload("toolagent_like", seed=7, rows=900), max_input=20_480)


def on_time(order: str, age_s: float, *, good_for_s: float = 1.0) -> float:
    """Return the share on time if decodes use memory and reports of it arrive this late."""
    base = evaluation_policy(Stage(name="least_cost"), Stage(name=order))
    dispatch_limit = msgspec.structs.replace(base.dispatch_limit, report_ttl_s=good_for_s)
    policy = msgspec.structs.replace(base, dispatch_limit=dispatch_limit)
    spec = RunSpec(policy=policy, engines=4, qps=9.5, warmup=200, engine_model="colocated", report_age_s=age_s)
    return report_of(spec, requests(), run(spec, requests()), 0.0).slo_share


@pytest.mark.parametrize("order", ["fifo", "slack"])
def test_reports_five_seconds_old_cost_less_than_three_points(order: str) -> None:
    """Placements ignore expired reports, so only the benefit of waiting for memory is lost."""
    fresh = on_time(order, 0.0)
    assert 0.9 < fresh < 1.0, "a load at which it could cost something"
    assert on_time(order, 5.0) > fresh - 0.03


def test_treating_old_reports_as_fresh_would_cost_more() -> None:
    assert on_time("fifo", 5.0, good_for_s=60.0) < on_time("fifo", 5.0) - 0.05


def test_if_load_is_only_our_own_dispatches_old_reports_change_nothing() -> None:
    policy = evaluation_policy(Stage(name="least_cost"), Stage(name="slack"))
    ends = []
    for age_s in (0.0, 5.0):
        spec = RunSpec(policy=policy, engines=4, qps=13.0, report_age_s=age_s)
        ends.append([item.finished_s for item in run(spec, requests()).history])
    assert ends[0] == ends[1]
