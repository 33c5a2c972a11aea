"""The whole search on small traces, with processes."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import msgspec
import pytest

from planning.adviser.prediction import TTFT_MEAN, Practical
from planning.adviser.verdict import Advice
from routing.policy.policy_document import RoutingPolicy, Stage
from simulator.adviser.command import main
from simulator.adviser.search import AdvicePlan, advise
from simulator.runs.policy_file import read_policy
from simulator.runs.run_task import RunTask
from simulator.runs.simulation_run import RunSpec

# Round robin recomputes prefixes that the other placements keep.
SHARED = {"groups": 24, "prompts": 40, "qps": 8.0, "ratio": 0.9, "lengths": [4096, 8192]}
ROUND_ROBIN = RoutingPolicy(placement=Stage(name="round_robin"), order=Stage(name="fifo"))


def plan(live: RoutingPolicy, runs: int = 100, budget_s: float = 600.0) -> AdvicePlan:
    spec = RunSpec(policy=live, engines=4, seed=7)
    source = RunTask(trace="gsp", settings=SHARED, requests=None, max_input=None, goodput=False, spec=spec)
    return AdvicePlan(source=source, budget_s=budget_s, runs=runs, jobs=1, practical=Practical())


@pytest.fixture(scope="module")
def planted() -> Advice:
    return advise(plan(ROUND_ROBIN))


def test_a_clearly_worse_live_policy_gets_a_proposal_whose_range_holds(planted: Advice) -> None:
    assert planted.proposal is not None
    ttft = {item.objective.name: item for item in planted.proposal.changes}[TTFT_MEAN]
    assert ttft.high < -0.1
    assert ttft.measured is not None
    assert ttft.low <= ttft.measured <= ttft.high
    assert planted.proposal.settings["placement.name"] != "round_robin"
    assert planted.runs <= 100


def test_the_best_known_policy_gets_no_proposal(planted: Advice) -> None:
    assert planted.proposal is not None
    advice = advise(plan(planted.proposal.policy))
    assert advice.proposal is None
    assert advice.abstains
    assert advice.candidates >= 3


def test_the_same_seed_gives_the_same_advice(planted: Advice) -> None:
    again = advise(plan(ROUND_ROBIN))
    assert msgspec.structs.replace(again, cpu_s=0.0) == msgspec.structs.replace(planted, cpu_s=0.0)


def test_a_spent_budget_starts_no_further_run() -> None:
    advice = advise(plan(ROUND_ROBIN, budget_s=1e-6))
    assert advice.proposal is None
    assert "budget" in advice.abstains
    # The run that spends it ends and counts.
    assert advice.runs <= 2
    assert not multiprocessing.active_children()


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
    assert main(["gsp", "--placement", "round_robin", "--out", str(out), "--json", str(report)]) == 0
    assert planted.proposal is not None
    assert read_policy(out).routing == planted.proposal.policy
    assert json.loads(report.read_text())["runs"] == planted.runs
    printed = capsys.readouterr().out
    assert "Proposal" in printed
    assert "TTFT, mean" in printed
    assert "busiest" in printed


def test_all_faults_are_reported_together(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--threshold", "2", "--budget-s", "0", "--arrivals", "poisson", "--qps", "3", "--runs", "none"]
    assert main(["gsp", *options]) == 2
    errors = capsys.readouterr().err
    assert all(name in errors for name in ("--threshold", "--budget-s", "--arrivals", "--runs"))


def test_a_short_trace_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gsp", "--requests", "100"]) == 2
    assert "windows" in capsys.readouterr().err
