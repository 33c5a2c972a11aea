from pathlib import Path
from typing import Any

import msgspec
import pytest

from routing.policy.policy_document import RoutingPolicy, Stage
from simulator.child_task import ChildCancelledError, ChildTaskError
from simulator.runs.run_report import report_of
from simulator.runs.run_task import RunTask
from simulator.runs.simulation_run import RunSpec, run
from simulator.runs.whatif import run_in_child
from simulator.workloads.conversation_like import generate
from simulator.workloads.prepared_workload import Workload
from simulator.workloads.trace import write_trace


def task(recording: Path, policy: RoutingPolicy, *, max_input: int | None = None, **spec: Any) -> RunTask:
    run_spec = RunSpec(policy=policy, engines=3, **spec)
    return RunTask(trace=str(recording), requests=None, max_input=max_input, goodput=False, spec=run_spec)


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "recording.jsonl.gz"
    write_trace(path, generate(150, 3))
    return path


def test_a_child_process_reports_the_same_as_a_run_in_this_process(recording: Path) -> None:
    shares: list[float] = []
    policy = RoutingPolicy(order=Stage(name="slack"))
    report = run_in_child(task(recording, policy, qps=4.0, max_input=20_480), on_progress=shares.append)
    spec, workload = RunSpec(policy=policy, engines=3, qps=4.0), Workload.read(recording, max_input=20_480)
    here = report_of(spec, workload, run(spec, workload), 0.0)
    assert msgspec.structs.replace(report, wall_s=0.0) == here
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_a_whatif_run_ends_when_it_is_cancelled(recording: Path) -> None:
    asked = 0

    def cancelled() -> bool:
        nonlocal asked
        asked += 1
        return asked > 2

    write_trace(recording, generate(20_000, 3))
    with pytest.raises(ChildCancelledError):
        run_in_child(task(recording, RoutingPolicy()), cancelled=cancelled)


def test_a_whatif_run_ends_at_its_time_limit(recording: Path) -> None:
    with pytest.raises(ChildTaskError, match="too long"):
        run_in_child(task(recording, RoutingPolicy()), max_s=0.0)


def test_an_invalid_recording_policy_or_model_is_reported(recording: Path, tmp_path: Path) -> None:
    with pytest.raises(ChildTaskError, match="no such file"):
        run_in_child(task(tmp_path / "none.jsonl", RoutingPolicy()))
    with pytest.raises(ChildTaskError, match=r"placement\.name: 'nearest'"):
        run_in_child(task(recording, RoutingPolicy(placement=Stage(name="nearest"))))
    with pytest.raises(ChildTaskError, match="engine model 'abacus'"):
        run_in_child(task(recording, RoutingPolicy(), engine_model="abacus"))
    with pytest.raises(ChildTaskError, match="leaves nothing"):
        run_in_child(task(recording, RoutingPolicy(), warmup=150))
