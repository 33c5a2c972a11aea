"""A pool behind several gateways serves as behind one with an owner, and worse without; runs are reproducible."""

from __future__ import annotations

import argparse
from functools import cache
from pathlib import Path

import pytest
from msgspec.structs import replace

from routing.chain.owner_decider import ANSWER_S
from routing.policy.policy_document import Stage
from simulator.command.simulate_options import SimulateOptionsError, add_arguments, plan_from
from simulator.fleet.fleet_changes import EngineDies, EngineJoins
from simulator.fleet.fleet_simulation import FleetSimulation
from simulator.fleet.several_gateways import SETTLE_S
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


def test_an_answer_takes_a_round_trip_for_requests_of_the_other_gateways() -> None:
    simulation = run(replace(spec(2, True), qps=1.0, owner_rtt_s=0.2), requests())
    waits = [(item.dispatched_s or 0.0) - item.request.arrived_s for item in simulation.history]
    own, asked = (sum(wait == pytest.approx(seconds) for wait in waits) for seconds in (0.0, 0.2))
    assert 0.4 * len(waits) < own < 0.6 * len(waits)
    assert asked > 0.3 * len(waits)


def test_a_gateway_decides_alone_if_the_owner_answers_too_late() -> None:
    late = replace(spec(2, True), engines=16, qps=1.0, owner_rtt_s=60.0)
    simulation = run(late, requests())
    simulation.check()
    waits = [(item.dispatched_s or 0.0) - item.request.arrived_s for item in simulation.history]
    assert any(ANSWER_S < wait <= ANSWER_S + 2 * SETTLE_S for wait in waits)
    assert report_of(late, requests(), simulation, 0.0).slo_share > 0.95


def test_requests_are_placed_again_if_their_engine_dies_before_the_owners_answer_arrives() -> None:
    changes = []
    for at_s in range(2, 30):
        changes += [EngineDies(at_s, f"e-00{at_s % 4 + 1}"), EngineJoins(at_s + 0.5, f"e-00{at_s % 4 + 1}", 1.0)]
    simulation = run(replace(spec(3, True), owner_rtt_s=0.2, changes=tuple(changes)), requests())
    simulation.check()
    assert {item.status for item in simulation.history} == {"finished"}


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
