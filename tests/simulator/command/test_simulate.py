import json
import subprocess
import sys
from pathlib import Path

import pytest

from routing.policy import policy_document
from routing.policy.schema_versions import SchemaLine
from simulator.command.simulate import main
from simulator.command.simulate_table import render
from simulator.workloads.conversation_like import generate
from simulator.workloads.trace import write_trace
from tests.patience import PATIENCE_S


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.jsonl.gz"
    write_trace(path, generate(120, 3))
    return path


def result(trace: Path, *options: str) -> dict | list:
    out = trace.parent / "out" / "report.json"
    assert main([str(trace), "--engines", "2", "--max-input", "20480", "--json", str(out), *options]) == 0
    return json.loads(out.read_text())


def test_a_run_writes_its_report_and_prints_a_table(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = result(trace, "--placement", "least_loaded", "--order", "late_last", "--qps", "3", "--warmup", "20")
    assert isinstance(report, dict)
    assert (report["placement"], report["order"], report["qps"], report["requests"]) == (
        "least_loaded",
        "late_last",
        3.0,
        120,
    )
    assert report["detail"]["counted"] == 100
    assert "least_loaded + late_last" in capsys.readouterr().out


def test_the_same_seed_writes_the_same_report(trace: Path) -> None:
    options = ("--qps", "4", "--seed", "7", "--goodput")
    first, second = result(trace, *options), result(trace, *options)
    assert isinstance(first, dict)
    assert isinstance(second, dict)
    first["wall_s"] = second["wall_s"] = 0
    assert first == second
    assert first["goodput_both_qps"] <= first["goodput_qps"]


def test_the_all_option_reports_every_pair_once(trace: Path) -> None:
    reports = result(trace, "--all", "--order", "fifo", "--qps", "3", "--jobs", "1", "--param", "beta=4")
    assert isinstance(reports, list)
    names = [report["placement"] for report in reports]
    assert {"round_robin", "least_cost", "dual_map"} <= set(names)
    assert len(set(names)) == len(names)


def test_several_seeds_run_in_child_processes_and_report_means(trace: Path) -> None:
    one = result(trace, "--qps", "4", "--seed", "5")
    means = result(trace, "--qps", "4", "--seed", "4", "--seeds", "2", "--jobs", "2")
    assert isinstance(one, dict)
    assert isinstance(means, dict)
    child = means["seeds"][1]
    assert {**child, "wall_s": 0} == {**one, "wall_s": 0}
    assert means["ttft_mean_s"] == pytest.approx(sum(seed["ttft_mean_s"] for seed in means["seeds"]) / 2)


def test_all_faults_are_reported_together(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = [
        "--placement",
        "nearest",
        "--engines",
        "none",
        "--qps",
        "-1",
        "--param",
        "beta",
        "--engine-model",
        "vllm",
    ]
    assert main([str(trace), *options]) == 2
    errors = capsys.readouterr().err
    for word in ("nearest", "--engines", "--qps", "KEY=VALUE", "vllm"):
        assert word in errors


@pytest.mark.parametrize(
    ("content", "options", "word"),
    [
        ("nonsense\n", [], "malformed"),
        (None, ["--warmup", "500"], "leaves nothing"),
        (None, ["--requests", "0"], "--requests"),
    ],
)
def test_invalid_input_is_reported(
    trace: Path, capsys: pytest.CaptureFixture[str], content: str | None, options: list[str], word: str
) -> None:
    path = trace
    if content is not None:
        path = trace.parent / "wrong.jsonl"
        path.write_text(content)
    assert main([str(path), *options]) == 2
    assert word in capsys.readouterr().err


@pytest.mark.parametrize("command", [["-m", "simulator"], ["manage.py", "simulate"]])
def test_the_command_runs_with_and_without_django(trace: Path, command: list[str]) -> None:
    out = trace.parent / "report.json"
    arguments = [str(trace), "--qps", "2", "--requests", "40", "--json", str(out)]
    subprocess.run([sys.executable, *command, *arguments], check=True, capture_output=True, timeout=PATIENCE_S)
    assert json.loads(out.read_text())["requests"] == 40


def test_a_policy_file_of_the_previous_schema_runs_with_a_note(
    trace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    line = SchemaLine("routing policies", 2, lambda old: {"ttft_slo_s": old["slo_ms"] / 1000})
    monkeypatch.setattr(policy_document, "ROUTING_SCHEMA", line)
    old = trace.parent / "old.json"
    old.write_text('{"schema_version": 1, "slo_ms": 2000}')
    assert main([str(trace), "--policy-file", str(old)]) == 0
    assert f"simulate: {old} is of schema 1; it was read as schema 2" in capsys.readouterr().err


def test_mooncake_notes_when_transfers_are_disabled(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for options, said in (([], True), (["--transfers"], False)):
        assert main([str(trace), "--placement", "mooncake", *options]) == 0
        assert ("mooncake chooses as min_ttft" in capsys.readouterr().err) == said


def test_each_report_is_a_row_and_empty_figures_get_no_column() -> None:
    table = render([
        {"placement": "least_cost", "order": "fifo", "qps": 10.0, "slo_share": 0.987, "ttft_p50_s": None},
        {"placement": "random", "order": "late_last", "qps": 8.0, "slo_share": 1.0, "ttft_p50_s": 1.234},
    ])  # fmt: skip
    head, first, second = table.splitlines()
    assert "goodput" not in head
    assert first.split() == ["least_cost", "+", "fifo", "10.0", "98.7%", "–"]
    assert second.split() == ["random", "+", "late_last", "8.0", "100.0%", "1.23", "s"]
    assert len(head) == len(first) == len(second)
