"""Locate the traces and select their rows."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from simulator.workloads.prepared_workload import Workload
from simulator.workloads.trace import TraceRow, read_trace

WARMUP = 500
MAX_INPUT = 20_480
FOLDER_VARIABLE = "HEADWAY_TRACES"
FOLDER = "../shared/traces"
TRACES = {
    "conversation": ("conversation_trace.jsonl.gz", 4000),
    "toolagent_like": ("toolagent_like.jsonl.gz", 8000),
}
"""Name → file, and the number of first rows to use, as in DualMap A.3.1."""


def trace_file(trace: str) -> Path:
    """Return a trace's file. Raises FileNotFoundError, which names the variable of its folder."""
    path = Path(os.environ.get(FOLDER_VARIABLE, FOLDER)) / TRACES[trace][0]
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; set {FOLDER_VARIABLE} to the folder that holds it")
    return path


@cache
def workload(trace: str, seed: int = 0) -> Workload:
    """Return the used rows, capped. `seed` salts their block keys, and thus changes tie-breaking."""
    return Workload.read(trace_file(trace), requests=TRACES[trace][1], max_input=MAX_INPUT, seed=seed)


@cache
def whole_trace(trace: str) -> list[TraceRow]:
    """Return all rows unchanged."""
    return read_trace(trace_file(trace), None)
