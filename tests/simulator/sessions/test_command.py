import json
from pathlib import Path

import pytest

from simulator.sessions.command import main

FIELDS = {
    "system", "workload", "users", "seed", "norm_ms_per_token", "tpot_ms", "ttft_mean_s", "ttft_p99_s",
    "requests_per_s", "max_over_mean_kv", "max_over_median_requests", "disk_busy", "wasted_bytes",
}  # fmt: skip


def test_the_command_writes_one_row_per_system_and_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "figures" / "out.json"
    args = ["chat", "--system", "ours,sticky", "--users", "8", "--seeds", "1,2", "--seconds", "20", "--json", str(out)]
    assert main(args) == 0
    rows = json.loads(out.read_text())
    assert [(row["system"], row["seed"]) for row in rows] == [("ours", 1), ("ours", 2), ("sticky", 1), ("sticky", 2)]
    assert all(set(row) == FIELDS for row in rows)
    assert "max/mean KV" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--system", "fastest", "ondemand"),
        ("--users", "0", "whole number"),
        ("--missed", "1.5", "share from 0 to 1"),
        ("--spurious", "x", "--spurious"),
        ("--seeds", "1,b", "--seeds"),
        ("--lead", "0", "--lead"),
        ("--hbm-tokens", "5", "--hbm-tokens"),
    ],
)
def test_an_invalid_option_is_reported(
    option: str, value: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {"--system": "ours", "--users": "8"} | {option: value}
    assert main(["chat", *(word for pair in given.items() for word in pair)]) == 2
    assert message in capsys.readouterr().err
