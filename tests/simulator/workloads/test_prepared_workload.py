from pathlib import Path

import pytest

from simulator.workloads.prepared_workload import Workload
from simulator.workloads.trace import write_trace
from tests.simulator.fleets import row


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
