"""Change from conversation to tool calls half way: in generated traffic, and in the traces where they are present."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench.adviser.traffic_change import noticed, planned, planted
from bench.evidence.traces import FOLDER, FOLDER_VARIABLE, TRACES, whole_trace
from simulator.workloads.registry import generate_workload
from simulator.workloads.trace import TraceRow

PRESENT = all((Path(os.environ.get(FOLDER_VARIABLE, FOLDER)) / name).is_file() for name, _ in TRACES.values())


def check_half_way(first: list[TraceRow], second: list[TraceRow], *, same_rate: bool) -> None:
    half_s = first[-1].timestamp / 2000
    rows = planted(first, second, 0.5, same_rate=same_rate)
    plan = planned(rows)
    assert noticed(plan, rows, half_s)
    assert plan.change is not None
    assert all(window.from_s >= plan.change.at_s for window in (*plan.search, *plan.predict, *plan.check))
    assert planned(first).change is None


@pytest.mark.parametrize("same_rate", [False, True])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_change_to_generated_tool_calls_is_noticed_within_two_windows(seed: int, same_rate: bool) -> None:
    first = generate_workload("conversation_like", seed=seed, rows=6000)
    second = generate_workload("toolagent_like", seed=seed, rows=12_000)
    check_half_way(first, second, same_rate=same_rate)


@pytest.mark.skipif(not PRESENT, reason=f"{FOLDER_VARIABLE} names no folder with the traces")
@pytest.mark.parametrize("same_rate", [False, True])
def test_a_change_between_the_traces_is_noticed_within_two_windows(same_rate: bool) -> None:
    check_half_way(whole_trace("conversation"), whole_trace("toolagent_like"), same_rate=same_rate)
