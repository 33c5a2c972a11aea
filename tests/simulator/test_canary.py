"""A canary in virtual time: its sessions, the results of its requests, and the guardrails' verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from planning.trials.comparison import FINE, LATE, TOO_FEW, TTFT, WORSE, Comparison, GuardrailReading
from routing.policy import policy_document
from routing.policy.policy_document import Stage
from routing.policy.schema_versions import SchemaLine
from routing.trials.arms import CANARY, LIVE, ArmEntry
from simulator.command.simulate import main
from simulator.command.simulate_table import render_canaries
from simulator.fleet.request_record import REJECTED, RequestRecord
from simulator.runs.canary_report import canary_report
from simulator.runs.run_report import on_time, report_of
from simulator.runs.simulation_run import RunSpec, evaluation_policy, run
from simulator.workloads.prepared_workload import Workload
from simulator.workloads.registry import generate_workload

LEAST_COST, WORST = Stage(name="least_cost"), Stage(name="round_robin")
RUN = ("multi_turn_chat", "--requests", "1200", "--qps", "12", "--warmup", "100")


@pytest.fixture(scope="module")
def workload() -> Workload:
    return Workload(generate_workload("multi_turn_chat", seed=1, rows=500, settings={}), seed=1)


def spec(share: float, tried: Stage = WORST, live: Stage = LEAST_COST, **fields: Any) -> RunSpec:
    arm = ArmEntry(arm=CANARY, trial_id="t", share=share, policy_version=2, placement=tried)
    policy = evaluation_policy(live, Stage(name="fifo"))
    return RunSpec(policy=policy, qps=10.0, engines=4, arms=(arm,) if share else (), **fields)


def draft(tmp_path: Path, **document: object) -> str:
    path = tmp_path / "draft.json"
    path.write_text(json.dumps(document))
    return str(path)


def canary(tmp_path: Path, *options: str, placement: str = "round_robin") -> dict[str, Any]:
    out = tmp_path / "out.json"
    file = draft(tmp_path, placement={"name": placement})
    assert main([*RUN, "--canary", file, "--json", str(out), *options]) == 0
    return dict(json.loads(out.read_text()))


def test_a_session_stays_in_its_arm_and_every_session_has_one(workload: Workload) -> None:
    simulation = run(spec(0.3), workload)
    simulation.check()
    arms: dict[str, set[str]] = {}
    for record in simulation.history:
        arms.setdefault(record.request.session_id, set()).add(simulation.router.arms.name_of(record.request))
    assert {len(names) for names in arms.values()} == {1}
    tried = sum(names == {CANARY} for names in arms.values()) / len(arms)
    assert 0.2 < tried < 0.4


def test_the_canary_uses_its_own_placement(workload: Workload) -> None:
    """A canary with all sessions equals the policy."""
    engines = [[item.engine_id for item in run(variant, workload).history] for variant in (
        spec(1.0), spec(0.0, live=WORST), spec(0.0)
    )]  # fmt: skip
    assert engines[0] == engines[1]
    assert engines[0] != engines[2]


def test_the_figures_of_both_arms_add_up_to_the_run(workload: Workload) -> None:
    asked = spec(0.4, warmup=50)
    report = report_of(asked, workload, run(asked, workload), 0.0)
    assert isinstance(report.detail, msgspec.Struct)
    canary_report = report.detail.canary
    assert canary_report is not None
    live, tried = canary_report.arms
    assert (live.arm, live.placement, tried.arm, tried.placement) == (LIVE, "least_cost", CANARY, "round_robin")
    assert live.requests + tried.requests == report.detail.counted == 450
    assert min(live.requests, tried.requests) > 100
    for mean, part in ((report.slo_share, "slo_share"), (report.ttft_mean_s, "ttft_mean_s")):
        whole = sum(getattr(arm, part) * arm.requests for arm in canary_report.arms) / 450
        assert whole == pytest.approx(mean)
    assert (canary_report.comparison.base_requests, canary_report.comparison.tried_requests) == (
        live.requests,
        tried.requests,
    )


def test_without_a_canary_nothing_is_compared(workload: Workload) -> None:
    asked = spec(0.0)
    report = report_of(asked, workload, run(asked, workload), 0.0)
    assert isinstance(report.detail, msgspec.Struct)
    assert report.detail.canary is None
    assert render_canaries([msgspec.to_builtins(report)]) == ""


def test_rejected_requests_are_late_in_their_arm(workload: Workload) -> None:
    simulation = run(spec(0.5), workload)
    records, arms = simulation.history, simulation.router.arms
    for record in records:
        if arms.name_of(record.request) == CANARY:
            reject(record)
    comparison = canary_report(arms, "least_cost", records, [on_time(item, None) for item in records])
    assert comparison is not None
    live, tried = comparison.arms
    assert (live.rejected, tried.rejected) == (0, tried.requests)
    assert (tried.slo_share, tried.ttft_mean_s, tried.token_hit_rate) == (0.0, None, None)
    readings = {reading.guard: reading for reading in comparison.comparison.readings}
    assert (readings[LATE].verdict, readings[LATE].tried) == (WORSE, 1.0)
    assert readings[TTFT].verdict == TOO_FEW


def reject(record: RequestRecord) -> None:
    record.status, record.first_token_s, record.finished_s, record.hit_tokens = REJECTED, None, None, None


def test_the_same_seed_repeats_the_comparison_and_another_one_has_other_sessions(tmp_path: Path) -> None:
    first, again, other = (canary(tmp_path, "--share", "0.2", "--seed", seed) for seed in ("3", "3", "4"))
    assert {**first, "wall_s": 0} == {**again, "wall_s": 0}
    requests = [[arm["requests"] for arm in item["detail"]["canary"]["arms"]] for item in (first, other)]
    assert requests[0] != requests[1]


def test_a_worse_canary_is_reported_with_its_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = canary(tmp_path, "--share", "0.3")["detail"]["canary"]
    readings = {item["guard"]: item for item in figures["comparison"]["readings"]}
    assert readings[TTFT]["verdict"] == WORSE
    live, tried = figures["arms"]
    assert live["token_hit_rate"] > tried["token_hit_rate"]
    shown = capsys.readouterr().out
    assert "Canary with 30 % of the sessions" in shown
    assert any(line.split()[:3] == ["canary,", "round_robin", str(tried["requests"])] for line in shown.splitlines())
    assert "worse; a live canary would be given up" in shown


def test_the_default_share_is_a_tenth(tmp_path: Path) -> None:
    assert canary(tmp_path)["detail"]["canary"]["share"] == 0.1


def test_seeds_are_compared_separately_and_alike_in_child_processes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = canary(tmp_path, "--seed", "6")
    both = canary(tmp_path, "--seed", "5", "--seeds", "2", "--jobs", "2")
    assert both["seeds"][1]["detail"]["canary"] == alone["detail"]["canary"]
    assert "of the sessions, seed 5" in capsys.readouterr().out


def test_a_fleet_with_roles_can_have_canaries(tmp_path: Path) -> None:
    detail = canary(tmp_path, "--prefill", "2", "--decode", "2", placement="least_loaded")["detail"]
    assert detail["prefill"] == 2
    requests = [arm["requests"] for arm in detail["canary"]["arms"]]
    assert sum(requests) == detail["counted"]
    assert min(requests) > 0


@pytest.mark.parametrize(
    ("document", "options", "words"),
    [
        ({}, [], "same parameters, so nothing would tell the arms apart"),
        ({"placement": {"name": "nearest"}}, [], "--canary: placement.name: 'nearest' is unknown"),
        ({"placement": {"name": "central"}}, ["--order", "fifo"], "--canary: "),
        ({"placement": {"name": "dual_map"}}, ["--share", "1"], "--share: 1 leaves the policy no session"),
        ({"placement": {"name": "dual_map"}}, ["--share", "0"], "--share: '0' is not a number above 0"),
        ({"placement": {"name": "dual_map"}}, ["--all"], "does not go with --all"),
        ({"placement": {"name": "dual_map"}}, ["--goodput"], "does not go with --goodput"),
        ({"placements": {}}, [], "is no policy"),
    ],
)
def test_incomparable_policies_are_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], document: dict[str, object], options: list[str], words: str
) -> None:
    assert main([*RUN, "--canary", draft(tmp_path, **document), *options]) == 2
    assert words in capsys.readouterr().err


def test_a_share_without_a_canary_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RUN, "--share", "0.2"]) == 2
    assert "there is no --canary" in capsys.readouterr().err


def test_untried_parts_of_the_draft_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    live = tmp_path / "live.json"
    live.write_text("{}")
    file = draft(tmp_path, placement={"name": "dual_map"}, order={"name": "slack"}, ttft_slo_s=2.0)
    assert main([*RUN, "--policy-file", str(live), "--canary", file]) == 0
    assert f"{file}: only its placement is tried; it differs in order, ttft_slo_s too" in capsys.readouterr().err


def test_a_draft_of_the_previous_schema_is_tried_with_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    line = SchemaLine("routing policies", 2, lambda old: {"placement": {"name": old["rule"]}})
    monkeypatch.setattr(policy_document, "ROUTING_SCHEMA", line)
    assert main([*RUN, "--canary", draft(tmp_path, schema_version=1, rule="dual_map")]) == 0
    output = capsys.readouterr()
    assert "is of schema 1; it was read as schema 2" in output.err
    assert "canary, dual_map" in output.out


def test_a_guardrail_without_figures_is_shown_as_such() -> None:
    reading = GuardrailReading(TTFT, None, None, None, None, None, 1.3, TOO_FEW)
    arm = {"arm": LIVE, "placement": "least_cost", "requests": 0, "slo_share": None, "ttft_mean_s": None}
    comparison = msgspec.to_builtins(Comparison((reading,), 0, 0, enough=False))
    arms = [{**arm, "ttft_p90_s": None, "token_hit_rate": None}]
    detail = {"seed": 0, "canary": {"share": 0.125, "arms": arms, "comparison": comparison}}
    shown = render_canaries([{"detail": detail}]).splitlines()
    assert shown[1] == "Canary with 12.5 % of the sessions"
    assert shown[3].split() == ["live,", "least_cost", "0", "–", "–", "–", "–"]
    assert shown[-1].endswith("too few requests to say")
    assert FINE not in shown[-1]
