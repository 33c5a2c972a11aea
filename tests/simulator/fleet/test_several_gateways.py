"""A pool behind several gateways serves as behind one with an owner, and worse without; runs are reproducible."""

from __future__ import annotations

import argparse
from functools import cache
from pathlib import Path

import pytest

from routing.policy.policy_document import Stage
from simulator.command.simulate_options import SimulateOptionsError, add_arguments, plan_from
from simulator.fleet.fleet_simulation import FleetSimulation
from simulator.runs.run_report import report_of
from simulator.runs.simulation_run import RunSpec, evaluation_policy, run
from simulator.workloads.prepared_workload import Workload
from simulator.workloads.registry import generate_workload
from simulator.workloads.trace import TraceRow, write_trace

POLICY = evaluation_policy(Stage(name="least_cost"), Stage(name="late_last"))


@cache
def requests() -> Workload:
    return Workload(generate_workload("toolagent_like", seed=7, rows=600), max_input=20_480)


def spec(gateways: int, owner: bool) -> RunSpec:
    return RunSpec(policy=POLICY, engines=4, qps=19.0, gateways=gateways, owner=owner)


def ran(gateways: int, *, owner: bool = True) -> FleetSimulation:
    simulation = run(spec(gateways, owner), requests())
    simulation.check()
    return simulation


def on_time(gateways: int, *, owner: bool = True) -> float:
    return report_of(spec(gateways, owner), requests(), ran(gateways, owner=owner), 0.0).slo_share


def test_several_gateways_serve_as_one_only_with_an_owner() -> None:
    alone = on_time(1)
    assert alone > 0.9
    assert on_time(2) >= 0.98 * alone
    assert on_time(4) >= 0.98 * alone
    assert on_time(2, owner=False) < 0.92 * alone


@pytest.mark.parametrize("owner", [True, False])
def test_the_same_seed_produces_the_same_outcomes(owner: bool) -> None:
    one, other = ([(item.engine_id, item.finished_s) for item in ran(3, owner=owner).history] for _ in range(2))
    assert one == other
    assert all(finished_s is not None for _, finished_s in one)


@pytest.mark.parametrize(
    "options",
    [
        ["--no-owner"],
        ["--gateways", "2", "--no-owner", "--owner-rtt", "0.1"],
        ["--gateways", "2", "--prefill", "2", "--decode", "2"],
    ],
)
def test_incompatible_options_are_reported(options: list[str], tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    write_trace(trace, [TraceRow(0, 5, 1, ())])
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    with pytest.raises(SimulateOptionsError, match=r"--(gateways|owner-rtt):"):
        plan_from(parser.parse_args([str(trace), *options]))
