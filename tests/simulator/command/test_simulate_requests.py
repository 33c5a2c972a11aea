"""Sources and arrival times of requests for `simulate`: options, and runs of each kind."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from simulator.command.simulate import main
from simulator.command.simulate_options import SimulateOptionsError, SimulatePlan, add_arguments, plan_from
from simulator.workloads.registry import WORKLOADS


def plan(*options: str) -> SimulatePlan:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return plan_from(parser.parse_args(options))


def report(tmp_path: Path, *options: str) -> dict:
    out = tmp_path / "report.json"
    assert main([*options, "--engines", "2", "--requests", "40", "--json", str(out)]) == 0
    return json.loads(out.read_text())


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_generated_workload_can_be_simulated(name: str, tmp_path: Path) -> None:
    result = report(tmp_path, name, "--qps", "2", "--max-input", "20480")
    assert result["requests"] == 40
    assert result["detail"]["finished_per_s"] > 0


def test_workload_settings_reach_the_workload(tmp_path: Path) -> None:
    shared = [
        report(tmp_path, "gsp", "--workload-param", f"ratio={ratio}", "--workload-param", "groups=2")
        for ratio in ("0", "0.9")
    ]
    assert shared[0]["hit_rate_infinite"] == 0
    assert shared[1]["hit_rate_infinite"] > 0.3


def test_closed_loop_clients_set_the_rate(tmp_path: Path) -> None:
    few, many = (report(tmp_path, "gsp", "--arrivals", "closed", "--clients", clients) for clients in ("1", "4"))
    assert few["qps"] is None
    assert many["detail"]["finished_per_s"] > few["detail"]["finished_per_s"]


def test_poisson_arrivals_spread_the_bursts_of_the_trace(tmp_path: Path) -> None:
    bursts, spread = (
        report(tmp_path, "toolagent_like", "--qps", "4", "--arrivals", arrivals) for arrivals in ("trace", "poisson")
    )
    assert bursts["ttft_mean_s"] != spread["ttft_mean_s"]
    assert bursts["qps"] == spread["qps"] == 4.0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["nowhere.jsonl"], ["nowhere.jsonl: no such file, and no workload", "gsp"]),
        (["gsp", "--workload-param", "ratio=2"], ["--workload-param", "ratio"]),
        (["gsp", "--workload-param", "ratio"], ["KEY=VALUE"]),
        (["gsp", "--arrivals", "often"], ["'often' is unknown; known are trace, poisson, closed"]),
        (["gsp", "--arrivals", "poisson"], ["needs the rate, --qps"]),
        (["gsp", "--arrivals", "closed"], ["needs the number of clients"]),
        (["gsp", "--arrivals", "closed", "--clients", "0"], ["--clients", "whole number"]),
        (["gsp", "--arrivals", "closed", "--clients", "2", "--qps", "3"], ["its rate follows"]),
        (["gsp", "--arrivals", "closed", "--clients", "2", "--goodput"], ["its rate follows"]),
        (["gsp", "--clients", "2", "--think", "1"], ["add --arrivals closed"]),
        ([__file__, "--workload-param", "ratio=0.5"], ["is a file"]),
    ],
)
def test_errors_name_their_option(options: list[str], words: list[str]) -> None:
    with pytest.raises(SimulateOptionsError) as caught:
        plan(*options)
    for word in words:
        assert word in str(caught.value)


def test_an_endless_workload_requires_a_number_of_requests(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["multi_turn_chat", "--workload-param", "sessions=0"]) == 2
    assert "number of rows" in capsys.readouterr().err
