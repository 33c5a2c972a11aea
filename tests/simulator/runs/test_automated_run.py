import json
from pathlib import Path

import msgspec
import pytest

from planning.documents.automation_document import AutomationPolicy
from planning.documents.ratio_document import RatioDocument
from planning.documents.scaling_document import ScalingDocument
from simulator.command.simulate import main
from simulator.runs.run_task import plan_rows, run_automated
from tests.simulator.fleets import chat, spec

SCALING = ScalingDocument(mode="act", min_engines=1, max_engines=5, window_s=10.0, warm_up_s=5.0, up_cool_down_s=5.0)
POLICY = AutomationPolicy(scaling=SCALING)


def test_a_run_reports_the_plans_of_its_automations_with_reasons() -> None:
    simulation, automation = run_automated(spec(engines=1, qps=4.0), chat(120), POLICY)
    plans = plan_rows(automation)
    assert [plan.automation for plan in plans if plan.what == "1 to 5 engines"] == ["scaling"]
    assert all(plan.why for plan in plans)
    assert len(simulation.router.view.roster.accepting) > 1
    added = [change for change in automation.changes if change.what == "added"]
    assert added[0].at_s == automation.scaling[0].at_s + SCALING.warm_up_s
    assert {item.engine_id for item in added} == {f"a-{number:03}" for number in range(1, len(added) + 1)}
    simulation.check()


def test_the_same_run_makes_the_same_plans() -> None:
    first, second = (run_automated(spec(engines=1, qps=4.0), chat(120), POLICY)[1] for _ in range(2))
    assert (plan_rows(first), first.changes) == (plan_rows(second), second.changes)


def test_the_command_accepts_a_document_and_reports_the_plans(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document, out = tmp_path / "automation.json", tmp_path / "report.json"
    document.write_bytes(msgspec.json.encode(POLICY))
    options = ["conversation_like", "--requests", "100", "--engines", "1", "--qps", "4", "--json", str(out)]
    assert main([*options, "--automation", str(document)]) == 0
    plans = json.loads(out.read_text())["detail"]["plans"]
    assert "scaling" in {plan["automation"] for plan in plans}
    assert main([*options, "--automation", str(tmp_path / "none.json")]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_a_policy_file_steers_a_fleet_with_roles_and_the_output_shows_the_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document, out = tmp_path / "policy.json", tmp_path / "report.json"
    ratio = RatioDocument(mode="act", window_s=30.0, hold_s=5.0, cool_down_s=20.0)
    document.write_bytes(msgspec.json.encode({"ttft_slo_s": 2.0, "automation": AutomationPolicy(ratio=ratio)}))
    options = ["conversation_like", "--requests", "200", "--qps", "4", "--max-input", "8192", "--json", str(out)]
    assert main([*options, "--prefill", "1", "--decode", "4", "--policy-file", str(document)]) == 0
    report = json.loads(out.read_text())
    detail = report["detail"]
    assert (report["engines"], detail["prefill"], detail["engine_model"], detail["unfinished"]) == (5, 1, "pd", 0)
    turned = [item for item in detail["engine_changes"] if item["what"] == "turned"]
    assert turned[0]["role"] == "prefill"
    assert {item["automation"] for item in detail["plans"]} >= {"ratio"}
    said = capsys.readouterr().out
    assert f"{turned[0]['at_s']:.0f} s  {turned[0]['engine_id']} turned into a prefill engine" in said
