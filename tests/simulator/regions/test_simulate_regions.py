from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simulator.regions.simulate_regions import main

KEYS = [
    "policy",
    "workload",
    "seed",
    "tokens_per_s",
    "ttft_p50_s",
    "ttft_p90_s",
    "e2e_p50_s",
    "hit_rate",
    "crossed_share",
    "unanswered",
]
SHORT = ("--warmup", "2", "--measure", "10", "--skew", "4:2:2")


def test_the_command_writes_a_row_per_policy_and_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "out.json"
    assert main(["arena", "--policy", "ours,skywalker", "--seeds", "4,5", "--json", str(out), *SHORT]) == 0
    rows = json.loads(out.read_text())
    assert [(row["policy"], row["seed"]) for row in rows] == [
        ("ours", 4),
        ("ours", 5),
        ("skywalker", 4),
        ("skywalker", 5),
    ]
    assert all(list(row) == KEYS for row in rows)
    assert "ours" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--policy", "nearest", "no policy nearest"),
        ("--skew", "120:40", "as in 120:40:40"),
        ("--replicas", "2", "fewer than one engine per region"),
        ("--kv-tokens", "10", "below 8000"),
        ("--rtt-scale", "-1", "not a number from 0"),
        ("--engine-speed", "0", "not above 0"),
        ("--seeds", "a", "whole numbers"),
    ],
)
def test_an_invalid_option_is_rejected_with_its_reason(
    option: str, value: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["tot", "--policy", "ours", option, value])
    assert stopped.value.code == 2
    assert says in capsys.readouterr().err


def test_replicas_can_be_set_per_region(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tot", "--policy", "ours", "--replicas", "2:0:0", *SHORT]) == 0
    assert main(["tot", "--policy", "ours", "--replicas", "4", *SHORT]) == 0
    assert " 0.0%" in capsys.readouterr().out


def rules(path: Path, **rule: Any) -> str:
    path.write_text(json.dumps({"rules": [{"name": "stays", "allow": False, **rule}]}))
    return str(path)


def test_rules_keep_requests_at_home(tmp_path: Path) -> None:
    out, file = tmp_path / "out.json", rules(tmp_path / "rules.json", from_regions=["us"])
    crowded = (
        "wild",
        "--policy",
        "ours",
        "--replicas",
        "1:1:1",
        "--skew",
        "60:1:1",
        "--warmup",
        "0",
        "--measure",
        "20",
    )
    crossed = []
    for options in ((), ("--sovereignty", file)):
        assert main([*crowded, *options, "--json", str(out)]) == 0
        crossed.append(json.loads(out.read_text())[0]["crossed_share"])
    assert crossed[0] > 0.2
    assert crossed[1] == 0


@pytest.mark.parametrize(
    ("policy", "rule", "says"),
    [
        ("round_robin", {}, "one central balancer sees every prompt"),
        ("ours", {"to_regions": ["mars"]}, "unknown: mars"),
        ("ours", {"to": ["eu"]}, "unknown field"),
    ],
)
def test_impossible_rules_are_rejected(
    tmp_path: Path, policy: str, rule: dict[str, Any], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["wild", "--policy", policy, "--sovereignty", rules(tmp_path / "rules.json", **rule)])
    assert says in capsys.readouterr().err
