"""The child process of a what-if: reads one task from stdin, and writes progress and the report to stdout."""

from __future__ import annotations

import argparse
import os
import sys

import msgspec

from routing.registry import PolicyStageError
from routing.values.prepared_struct import prepared
from simulator.engine_models.registry import UnknownEngineModelError
from simulator.parent_death import die_with_parent
from simulator.runs.run_task import NothingCountedError, RunTask, do_task, workload_of
from simulator.runs.whatif import Failure, Message, WhatIfDone, WhatIfProgress
from simulator.workloads.trace import TraceError

_STEPS = 100
NICE = 10
"""Nice level: a what-if yields the CPU to live processes on the same machine."""


def main(argv: list[str]) -> int:
    """Run the task from stdin and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parent-pid", type=int, default=None, help="exit when this process ends")
    parent_pid = parser.parse_args(argv).parent_pid
    if parent_pid is not None:
        die_with_parent(parent_pid)
        os.nice(NICE)
    try:
        task = msgspec.json.decode(sys.stdin.buffer.read(), type=prepared(RunTask))
        _do(task)
    except (TraceError, NothingCountedError, PolicyStageError, UnknownEngineModelError, msgspec.DecodeError) as error:
        _send(Failure(str(error)))
    except Exception as error:  # noqa: BLE001  # the edge of this process: the caller must receive it
        _send(Failure(f"{type(error).__name__}: {error}"))
        return 1
    return 0


def _do(task: RunTask) -> None:
    total = len(workload_of(task))
    arrived = reported = 0

    def step(requests: int, note: str) -> None:
        nonlocal arrived, reported
        arrived += requests
        if arrived * _STEPS // total > reported:
            reported = arrived * _STEPS // total
            _send(WhatIfProgress(arrived / total))

    _send(WhatIfDone(do_task(task, step)))


def _send(message: Message) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(message) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
