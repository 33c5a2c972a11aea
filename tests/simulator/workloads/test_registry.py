from __future__ import annotations

from pathlib import Path

import pytest

from simulator.workloads.__main__ import main
from simulator.workloads.prepared_workload import Workload
from simulator.workloads.registry import WORKLOADS, WrongWorkloadError, generate_workload
from simulator.workloads.trace import read_trace, write_trace
from tests.simulator.fleets import row


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_every_workload_round_trips_through_a_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl.gz"
    assert main([name, "--out", str(path), "--rows", "300", "--seed", "3"]) == 0
    assert read_trace(path) == generate_workload(name, seed=3, rows=300)


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_every_workload_follows_its_seed_and_rate(name: str) -> None:
    slow, fast = (generate_workload(name, seed=1, rows=800, settings={"qps": qps}) for qps in (2.0, 8.0))
    assert slow == generate_workload(name, seed=1, rows=800, settings={"qps": 2.0})
    assert slow != generate_workload(name, seed=2, rows=800, settings={"qps": 2.0})
    assert fast[200].timestamp < slow[200].timestamp * 0.75


def test_settings_are_given_as_key_value_pairs(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    settings = ["--param", "order=round_robin", "--param", "lengths=[1024, 4096]", "--param", "groups=4", "--qps", "3"]
    assert main(["gsp", "--out", str(path), *settings]) == 0
    assert [row.input_length for row in read_trace(path)[:4]] == [1024, 4096, 1024, 4096]


def test_all_invalid_settings_are_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    wrong = ["--param", "ratio=1.5", "--param", "order=backwards", "--param", "colour=red"]
    assert main(["gsp", "--out", str(tmp_path / "trace.jsonl"), *wrong]) == 2
    said = capsys.readouterr().err
    assert all(name in said for name in ("ratio", "order", "colour", "lengths"))


def test_an_unknown_workload_lists_the_known_ones() -> None:
    with pytest.raises(WrongWorkloadError, match="known are conversation_like, document_qa, gsp"):
        generate_workload("chat")


def test_an_endless_workload_requires_a_number_of_rows() -> None:
    with pytest.raises(WrongWorkloadError, match="needs a number of rows"):
        generate_workload("multi_turn_chat", settings={"sessions": 0})
    assert len(generate_workload("multi_turn_chat", rows=10, settings={"sessions": 0})) == 10


def test_the_first_rows_are_read_and_truncated(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    write_trace(path, [row(at, range(at + 1)) for at in range(5)])
    workload = Workload.read(path, requests=3, max_input=1024)
    assert workload.prompt_tokens == [512, 1024, 1024]
    assert [len(keys) for keys in workload.keys] == [1, 2, 2]


def test_the_infinite_hit_rate_excludes_the_warm_up() -> None:
    workload = Workload([row(0, (1, 2)), row(1, (1, 2)), row(2, (1, 3))])
    assert workload.infinite_hits == [0, 1024, 512]
    assert (workload.infinite_hit_rate(0), workload.infinite_hit_rate(1)) == (0.5, 0.75)


def test_an_empty_workload_is_rejected() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Workload([])
