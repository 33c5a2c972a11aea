"""What-if: the results of a policy on recorded requests, simulated in a child process.

`python -m simulator.runs.whatif` is that process: it reads a RunTask and writes its RunReport.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import msgspec

from routing.registry import PolicyStageError
from routing.values.prepared_struct import prepared
from simulator.child_task import OnShare, run_child, serve_task
from simulator.engine_models.registry import UnknownEngineModelError
from simulator.runs.run_report import RunReport
from simulator.runs.run_task import NothingCountedError, RunTask, do_task, workload_of
from simulator.workloads.trace import TraceError

_EXPECTED = (TraceError, NothingCountedError, PolicyStageError, UnknownEngineModelError)


def run_in_child(
    task: RunTask,
    *,
    max_s: float = 900.0,
    on_progress: OnShare | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> RunReport:
    """Run the task in a child process and return its report.

    `on_progress` receives the share of requests that have arrived, 0..1. Raises the errors of `run_child`, also if the
    recording or policy is invalid.
    """
    encoded = run_child(
        "simulator.runs.whatif", msgspec.json.encode(task), max_s=max_s, on_progress=on_progress, cancelled=cancelled
    )
    return msgspec.json.decode(encoded, type=prepared(RunReport))


def _compute(encoded: bytes, progress: OnShare) -> RunReport:
    task = msgspec.json.decode(encoded, type=prepared(RunTask))
    total, arrived = len(workload_of(task)), 0

    def step(requests: int, _note: str) -> None:
        nonlocal arrived
        arrived += requests
        progress(arrived / total)

    return do_task(task, step)


if __name__ == "__main__":
    sys.exit(serve_task(sys.argv[1:], _compute, _EXPECTED))
