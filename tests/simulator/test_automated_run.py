import json
from pathlib import Path

import msgspec
import pytest

from planning.automation_document import AutomationPolicy
from planning.scaling_document import ScalingDocument
from simulator.automated_run import UnreadableAutomationError, read_automation, run_automated
from simulator.simulate import main
from tests.simulator.fleets import chat, spec

SCALING = ScalingDocument(
    mode="act", min_engines=1, max_engines=5, window_s=10.0, warm_up_s=5.0, up_cool_down_s=5.0, min_requests=5
)
POLICY = AutomationPolicy(scaling=SCALING)


def test_a_run_tells_what_its_automations_planned_and_why() -> None:
    simulation, plans = run_automated(spec(engines=1, qps=4.0), chat(120), POLICY)
    assert [each.automation for each in plans if each.what == "1 to 5 engines"] == ["scaling"]
    assert all(each.why for each in plans)
    assert len(simulation.router.view.accepting) > 1
    simulation.check()


def test_the_same_run_makes_the_same_plans() -> None:
    first, second = (run_automated(spec(engines=1, qps=4.0), chat(120), POLICY)[1] for _ in range(2))
    assert first == second


def test_a_document_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "automation.json"
    path.write_bytes(msgspec.json.encode(POLICY))
    assert read_automation(path) == POLICY


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "no automation document"),
        ('{"scaling": {"max_up": 0}}', r"\$.scaling.max_up"),
        ('{"scaling": {"min_engines": 9, "max_engines": 2}}', r"\$.scaling.min_engines"),
    ],
)
def test_a_wrong_document_is_refused_with_the_place(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "automation.json"
    path.write_text(text)
    with pytest.raises(UnreadableAutomationError, match=words):
        read_automation(path)


def test_the_command_takes_a_document_and_reports_the_plans(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document, out = tmp_path / "automation.json", tmp_path / "report.json"
    document.write_bytes(msgspec.json.encode(POLICY))
    options = ["conversation_like", "--requests", "100", "--engines", "1", "--qps", "4", "--json", str(out)]
    assert main([*options, "--automation", str(document)]) == 0
    plans = json.loads(out.read_text())["detail"]["plans"]
    assert "scaling" in {each["automation"] for each in plans}
    assert main([*options, "--automation", str(tmp_path / "none.json")]) == 2
    assert "cannot read" in capsys.readouterr().err
