"""The whole search on small traces, with processes."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import msgspec
import pytest

from planning.adviser.fleet_shape import FleetRange, FleetShape
from planning.adviser.prediction import ENGINE_HOURS, TTFT_MEAN, Practical
from planning.adviser.verdict import Advice
from routing.policy.policy_document import RoutingPolicy, Stage
from simulator.adviser.command import main
from simulator.adviser.evaluation import BudgetSpentError
from simulator.adviser.search import AdvicePlan, advise
from simulator.runs.policy_file import read_policy
from simulator.runs.run_task import RunTask
from simulator.runs.simulation_run import RunSpec

# Round robin recomputes prefixes that the other placements keep.
SHARED = {"groups": 24, "prompts": 40, "qps": 8.0, "ratio": 0.9, "lengths": [4096, 8192]}
ROUND_ROBIN = RoutingPolicy(placement=Stage(name="round_robin"), order=Stage(name="fifo"))
BEST = RoutingPolicy()


def plan(live: RoutingPolicy, runs: int = 100, budget_s: float = 600.0, fleets: FleetRange | None = None) -> AdvicePlan:
    fleets = fleets or FleetRange.only(FleetShape(4))
    spec = RunSpec(policy=live, engines=fleets.live.engines, prefill=fleets.live.prefill, seed=7)
    source = RunTask(trace="gsp", settings=SHARED, requests=None, max_input=None, goodput=False, spec=spec)
    return AdvicePlan(source=source, budget_s=budget_s, runs=runs, jobs=1, practical=Practical(), fleets=fleets)


@pytest.fixture(scope="module")
def planted() -> Advice:
    return advise(plan(ROUND_ROBIN))


def test_a_clearly_worse_live_policy_gets_a_proposal_that_the_other_windows_confirm(planted: Advice) -> None:
    assert planted.proposal is not None
    ttft = {item.objective.name: item for item in planted.proposal.changes}[TTFT_MEAN]
    assert ttft.high < -0.1
    # A range of 90 %, at twice its width; bench.adviser.calibration measures how often ranges hold.
    assert 2 * ttft.low - ttft.change <= ttft.measured <= 2 * ttft.high - ttft.change
    assert planted.proposal.settings["placement.name"] != "round_robin"
    assert planted.runs <= 100


def test_parameters_without_effect_are_not_proposed(planted: Advice) -> None:
    assert planted.proposal is not None
    assert set(planted.proposal.settings) <= {"placement.name", "order.name"} | {
        path for path in planted.proposal.settings if ".params." in path
    }


def test_the_best_known_policy_gets_no_proposal(planted: Advice) -> None:
    assert planted.proposal is not None
    advice = advise(plan(planted.proposal.policy))
    assert advice.proposal is None
    assert advice.abstains
    assert advice.candidates >= 3


def test_the_same_seed_gives_the_same_advice(planted: Advice) -> None:
    again = advise(plan(ROUND_ROBIN))
    assert msgspec.structs.replace(again, cpu_s=0.0) == msgspec.structs.replace(planted, cpu_s=0.0)


def test_fewer_engines_are_proposed_where_requests_stay_on_time() -> None:
    fleets = FleetRange(live=FleetShape(12), engines=(2, 12))
    made = advise(plan(BEST, fleets=fleets)).proposal
    assert made is not None
    assert 2 <= made.fleet.engines < 12
    assert made.settings["fleet.engines"] == made.fleet.engines
    hours = {item.objective.name: item for item in made.changes}[ENGINE_HOURS]
    assert hours.low == pytest.approx(made.fleet.engines / 12 - 1)
    assert hours.low == pytest.approx(hours.high)
    assert (hours.live, hours.proposed) == (288, 24 * made.fleet.engines)


def test_more_engines_are_proposed_for_a_missed_objective_and_are_its_cost() -> None:
    fleets = FleetRange(live=FleetShape(1), engines=(1, 4))
    made = advise(plan(RoutingPolicy(ttft_slo_s=0.5), fleets=fleets)).proposal
    assert made is not None
    assert made.fleet.engines > 1
    assert made.costs[0].startswith("Engine hours per day: +")


def test_no_engine_is_saved_that_the_objective_needs() -> None:
    fleets = FleetRange(live=FleetShape(2), engines=(1, 2))
    advice = advise(plan(RoutingPolicy(ttft_slo_s=0.5), fleets=fleets))
    candidates = [advice.proposal] if advice.proposal else advice.rejected
    assert all(item.fleet.engines == 2 for item in candidates)


def test_a_pool_with_roles_gets_another_ratio() -> None:
    fleets = FleetRange(live=FleetShape(4, 1), engines=(4, 4), prefill=(1, 3))
    made = advise(plan(ROUND_ROBIN, fleets=fleets)).proposal
    assert made is not None
    assert (made.fleet.engines, made.fleet.prefill > 1) == (4, True)


def test_a_spent_budget_starts_no_further_run() -> None:
    advice = advise(plan(ROUND_ROBIN, budget_s=1e-6))
    assert advice.proposal is None
    assert "budget" in advice.abstains
    # The run that spends it ends and counts.
    assert advice.runs <= 2
    assert not multiprocessing.active_children()


def test_where_the_budget_ends_the_search_its_best_so_far_is_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    def spent(*_: object) -> None:
        raise BudgetSpentError("spent")

    monkeypatch.setattr("simulator.adviser.search._Search._ranked", spent)
    advice = advise(plan(ROUND_ROBIN))
    assert advice.cut_short
    assert advice.proposal is not None


def test_ctrl_c_in_the_middle_of_a_run_ends_the_children(monkeypatch: pytest.MonkeyPatch) -> None:
    children: list = []

    def interrupted(waiting: dict, **_: object) -> None:
        # Where Ctrl-C arrives: the run has been submitted and has not ended.
        assert waiting
        children.extend(multiprocessing.active_children())
        raise KeyboardInterrupt

    monkeypatch.setattr("simulator.adviser.evaluation.wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        advise(plan(ROUND_ROBIN))
    assert children
    assert not any(child.is_alive() for child in children)


def test_few_runs_abstain_before_the_first() -> None:
    advice = advise(plan(ROUND_ROBIN, runs=10))
    assert (advice.proposal, advice.runs, advice.candidates) == (None, 0, 0)


def test_the_command_writes_the_draft_that_simulate_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, planted: Advice
) -> None:
    monkeypatch.setattr("simulator.adviser.search.advise", lambda *_: planted)
    out, report = tmp_path / "draft.json", tmp_path / "advice.json"
    options = ["--requests", "600", "--out", str(out), "--json", str(report)]
    assert main(["gsp", "--from", "round_robin", *options]) == 0
    assert planted.proposal is not None
    assert read_policy(out).routing == planted.proposal.policy
    written = json.loads(report.read_text())
    assert written["abstained"] is False
    assert written["advice"]["runs"] == planted.runs < written["evaluations"]
    assert written["predicted"][TTFT_MEAN]["low"] <= written["predicted"][TTFT_MEAN]["mid"] < 0
    assert 0 < written["goodput_both_qps"] <= written["goodput_qps"]
    printed = capsys.readouterr().out
    assert "Proposal" in printed
    assert "TTFT, mean" in printed
    assert "busiest" in printed


def test_all_faults_are_reported_together(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--threshold", "2", "--cpu-minutes", "0", "--arrivals", "poisson", "--qps", "3", "--runs", "none"]
    assert main(["gsp", *options, "--engines-max", "4", "--prefill-max", "2"]) == 2
    errors = capsys.readouterr().err
    names = ("--threshold", "--cpu-minutes", "--arrivals", "--runs", "--engines-min", "--prefill-min")
    assert all(name in errors for name in names)


def test_engines_stay_within_the_bounds_of_the_files_automation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    live = tmp_path / "live.json"
    live.write_text(json.dumps({"automation": {"scaling": {"min_engines": 4, "max_engines": 10}}}))
    assert main(["gsp", "--from", str(live), "--engines-min", "3", "--engines-max", "11"]) == 2
    errors = capsys.readouterr().err
    assert "below the automation's minimum of 4" in errors
    assert "above the automation's maximum of 10" in errors


def test_a_short_trace_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gsp", "--requests", "100"]) == 2
    assert "windows" in capsys.readouterr().err
