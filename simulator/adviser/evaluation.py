"""Runs policies on windows of a trace in child processes, within a budget of CPU seconds."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from types import TracebackType
from typing import Self

import msgspec

from planning.adviser.fleet_shape import FleetPolicy
from planning.adviser.prediction import ENGINE_HOURS, ON_TIME, ON_TIME_TOKENS, REJECTED, TTFT_MEAN, WindowFigures
from planning.adviser.trace_windows import TraceWindow
from routing.values.counted import count
from routing.values.prepared_struct import prepared
from simulator.child_task import NICE
from simulator.fleet.request_record import RequestRecord
from simulator.parent_death import die_with_parent
from simulator.runs.run_report import on_time, report_of
from simulator.runs.run_task import RunTask, workload_of
from simulator.runs.simulation_run import RunSpec, run
from simulator.workloads.prepared_workload import Workload

_LENGTHS = ("shortest quarter of prompts", "second quarter", "third quarter", "longest quarter", "longest tenth")
MOST_TENANTS = 50
"""Tenants with the most requests in a run that are reported."""


class WindowTask(msgspec.Struct, frozen=True, kw_only=True):
    """A run of one policy on one window of a trace."""

    source: RunTask
    """The trace, or the generated workload; its own policy is not used."""
    window: TraceWindow
    time_scale: float
    """Factor of all times of the trace."""
    spec: RunSpec


class _Done(msgspec.Struct, frozen=True):
    figures: WindowFigures
    pid: int
    cpu_s: float
    """CPU time of the child since its start."""


_Key = tuple[bytes, int, int, int]
"""Encoded policy and fleet, first and last row of the window, seed."""
_HOURS_PER_DAY = 24


class BudgetSpentError(RuntimeError):
    """The CPU budget is spent."""


class Evaluator:
    """Runs policies on windows; equal runs are made once.

    Mutable state: `_known` (the figures of each run) and `_cpu_s` (CPU time of each child by its pid). Leaving the
    context ends the children, also in the middle of a run.
    """

    def __init__(self, source: RunTask, time_scale: float, jobs: int, budget_s: float) -> None:
        self.runs = 0
        self.limit_s = budget_s
        self._source = source
        self._time_scale = time_scale
        self._jobs = jobs
        self._known: dict[_Key, WindowFigures] = {}
        self._cpu_s: dict[int, float] = {}
        self._others = {child.pid for child in multiprocessing.active_children()}
        self._children = ProcessPoolExecutor(
            jobs, mp_context=multiprocessing.get_context("spawn"), initializer=_begin, initargs=(os.getpid(),)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ours = [child for child in multiprocessing.active_children() if child.pid not in self._others]
        self._children.shutdown(wait=False, cancel_futures=True)
        for child in ours:
            child.kill()
            child.join()

    @property
    def cpu_s(self) -> float:
        """CPU seconds of all children up to their last ended run."""
        return sum(self._cpu_s.values())

    def figures(
        self, policies: Sequence[FleetPolicy], windows: Sequence[TraceWindow], seeds: Sequence[int]
    ) -> list[list[WindowFigures]]:
        """Return the runs of each policy, by window and then by seed; raise BudgetSpentError.

        No run starts after the budget is spent. Runs in progress finish, and their CPU time counts.
        """
        runs = [(policy, window, seed) for policy in policies for window in windows for seed in seeds]
        keys = [(msgspec.json.encode(policy), window.first, window.last, seed) for policy, window, seed in runs]
        tasks = {key: self._task(*run) for key, run in zip(keys, runs, strict=True) if key not in self._known}
        self._run(tasks)
        made, per_policy = [self._known[key] for key in keys], len(windows) * len(seeds)
        return [made[at : at + per_policy] for at in range(0, len(made), per_policy)]

    def _run(self, tasks: dict[_Key, WindowTask]) -> None:
        left = list(tasks.items())[::-1]
        waiting: dict[Future[bytes], _Key] = {}
        while left or waiting:
            while left and len(waiting) < self._jobs and self.cpu_s < self.limit_s:
                key, task = left.pop()
                waiting[self._children.submit(_run_encoded, msgspec.json.encode(task))] = key
            if not waiting:
                raise BudgetSpentError(f"The budget was spent after {count(self.runs, 'run')}")
            ended, _ = wait(waiting, return_when=FIRST_COMPLETED)
            for future in ended:
                done = msgspec.json.decode(future.result(), type=prepared(_Done))
                self._known[waiting.pop(future)] = done.figures
                self._cpu_s[done.pid] = done.cpu_s
                self.runs += 1

    def _task(self, tried: FleetPolicy, window: TraceWindow, seed: int) -> WindowTask:
        spec = msgspec.structs.replace(
            self._source.spec,
            policy=tried.policy,
            engines=tried.fleet.engines,
            prefill=tried.fleet.prefill,
            seed=seed,
            warmup=window.warmup,
        )
        return WindowTask(source=self._source, window=window, time_scale=self._time_scale, spec=spec)


def _begin(parent_pid: int) -> None:
    """Prepare a child: it yields the CPU, and its parent alone ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent(parent_pid)
    os.nice(NICE)


def _run_encoded(encoded: bytes) -> bytes:
    figures = run_window(msgspec.json.decode(encoded, type=prepared(WindowTask)))
    return msgspec.json.encode(_Done(figures, os.getpid(), time.process_time()))


def run_window(task: WindowTask) -> WindowFigures:
    """Run the task's policy on its window and return the figures of the counted requests."""
    window, spec = task.window, task.spec
    rows = workload_of(task.source).rows[window.first : window.last]
    span_s = (rows[-1].timestamp - rows[0].timestamp) / 1000
    if spec.qps is not None and span_s > 0:
        # A window keeps its own share of the traffic: only the trace as a whole has the requested mean rate.
        spec = msgspec.structs.replace(spec, qps=len(rows) / (span_s * task.time_scale))
    workload = Workload(rows, max_input=task.source.max_input, seed=spec.seed)
    simulation = run(spec, workload)
    report = report_of(spec, workload, simulation, 0.0)
    records = simulation.history[spec.warmup :]
    groups: dict[str, tuple[int, float]] = {}
    if report.detail is not msgspec.UNSET:
        # Tiny windows lack the quarters that have no request.
        bands = zip(_LENGTHS, report.detail.bands, strict=False)
        groups = {name: (band.requests, band.slo_share) for name, band in bands}
    return WindowFigures(
        figures={
            ON_TIME: report.slo_share,
            ON_TIME_TOKENS: report.slo_token_share,
            REJECTED: report.rejected / len(records),
            TTFT_MEAN: report.ttft_mean_s,
            "ttft_p50_s": report.ttft_p50_s,
            "ttft_p90_s": report.ttft_p90_s,
            "ttft_p99_s": report.ttft_p99_s,
            # 0 if the engine model has no decode steps.
            "tpot_p90_s": report.itl_p90_s or None,
            "hits": report.token_hit_rate,
            "engine_s": sum(record.compute_s for record in records) / len(records),
            ENGINE_HOURS: _HOURS_PER_DAY * spec.engines,
        },
        groups={**groups, **_tenants(records, spec.slo_tpot_s)},
    )


def _tenants(records: Sequence[RequestRecord], slo_tpot_s: float | None) -> dict[str, tuple[int, float]]:
    """Return requests and on-time share of the largest tenants; none if the trace names one or none."""
    met: dict[str, list[bool]] = {}
    for record in records:
        met.setdefault(record.request.tenant_id, []).append(on_time(record, slo_tpot_s))
    largest = sorted(met, key=lambda name: (-len(met[name]), name))[: MOST_TENANTS if len(met) > 1 else 0]
    return {f"tenant {name or 'without a name'}": (len(met[name]), sum(met[name]) / len(met[name])) for name in largest}
