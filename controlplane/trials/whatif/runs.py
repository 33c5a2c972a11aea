"""Executes the runs of a what-if in parallel child processes, and builds its result."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

import msgspec

from controlplane.trials.whatif.comparison import (
    bands_of,
    closest,
    differences_of,
    model_error,
    own_ttft_s,
    side_of,
    what_happened,
)
from controlplane.trials.whatif.plan import BASE, DRAFT, WhatIfPlan
from controlplane.trials.whatif.result import WhatIfResult
from routing.values.prepared_struct import prepared
from simulator.runs.run_report import RunReport
from simulator.runs.run_task import RunTask
from simulator.runs.whatif import run_in_child

MAX_RUN_S = 3600.0
MAX_AT_ONCE = 8
POLL_S = 0.5

Reports = dict[str, RunReport]
"""Reports by run_name."""


class StoppedError(RuntimeError):
    """The runs were stopped before all were complete."""


def run_name(side: str, seed: int) -> str:
    """Return the key of a run."""
    return f"{side}:{seed}"


def runs_at_once(cores: int) -> int:
    """Return the number of parallel runs. One core stays free for a gateway on this machine.

    A low priority is not sufficient, because a waking thread may wait for a core until the kernel's next tick (ADR
    0044).
    """
    return min(max(1, cores - 1), MAX_AT_ONCE)


def run_whatif(
    plan: WhatIfPlan,
    done: Reports,
    *,
    on_progress: Callable[[float, Reports], bool],
    at_once: int | None = None,
) -> WhatIfResult:
    """Execute all runs that are not in `done`, and return the result.

    If there are several candidate engines, each is simulated with the first requests and the first seed of the recorded
    side, and the engine closest to the recorded outcome is used. `on_progress` is called twice a second with the
    completed share, 0..1, and all reports so far. If it returns False, the runs end and StoppedError is raised. Raises
    simulator.child_task.ChildTaskError if a run fails.
    """
    trial = plan.trial
    actual_s = own_ttft_s(trial.counted, plan.checked_version)
    trials = (
        range(len(plan.engine_candidates)) if actual_s is not None and len(plan.engine_candidates) > 1 else range(0)
    )
    wanted = {f"trial:{number}": trial.with_engine(number).task(plan.checked_side, 0) for number in trials}
    # On a short recording the trial is the whole run, so its report counts.
    reused = bool(wanted) and len(trial.rows) == len(plan.rows)
    work = _Work(len(wanted) + len(plan.names()) - reused, on_progress, at_once)
    reports = work.do(wanted, done)
    if actual_s is not None and wanted:
        number = closest([reports[f"trial:{item}"] for item in trials], actual_s)
        plan = plan.with_engine(number)
        if reused:
            reports[run_name(plan.checked_side, 0)] = reports[f"trial:{number}"]
    wanted = {run_name(side, seed): plan.task(side, seed) for side, seed in plan.names()}
    return answer_of(plan, work.do(wanted, reports))


class _Work:
    """Runs tasks in child processes. Mutable: the progress of the started tasks."""

    def __init__(self, total: int, on_progress: Callable[[float, Reports], bool], at_once: int | None) -> None:
        self._total = total
        self._on_progress = on_progress
        self._at_once = at_once or runs_at_once(_cores())
        self._shares: dict[str, float] = {}

    def do(self, wanted: dict[str, RunTask], done: Reports) -> Reports:
        """Return the reports in `done`, after running the wanted tasks that have no report."""
        reports, stopping = dict(done), threading.Event()
        with ThreadPoolExecutor(max_workers=self._at_once) as pool:
            running: dict[Future[RunReport], str] = {}
            try:
                for name, task in wanted.items():
                    if name not in reports:
                        running[pool.submit(self._run, name, task, stopping)] = name
                while running:
                    ended, _ = wait(running, timeout=POLL_S, return_when=FIRST_COMPLETED)
                    for item in ended:
                        reports[running.pop(item)] = item.result()
                    if not self._on_progress(self._share(reports), reports):
                        raise StoppedError("the what-if was stopped before all runs were done")
            finally:
                stopping.set()
                for item in running:
                    item.cancel()
        return reports

    def _run(self, name: str, task: RunTask, stopping: threading.Event) -> RunReport:
        def progress(share: float) -> None:
            self._shares[name] = min(share, 1.0)

        return run_in_child(task, max_s=MAX_RUN_S, on_progress=progress, cancelled=stopping.is_set)

    def _share(self, reports: Reports) -> float:
        # A copy: the threads of the runs add to it meanwhile.
        under_way = sum(share for name, share in self._shares.copy().items() if name not in reports)
        return min(1.0, (len(reports) + under_way) / self._total)


def _cores() -> int:
    """Return the cores that this process may use, if the system reports them."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def answer_of(plan: WhatIfPlan, reports: Reports) -> WhatIfResult:
    """Return the result from the reports of all runs."""
    seeds = range(plan.conditions.seeds)
    base, draft = ([reports[run_name(side, seed)] for seed in seeds] for side in (BASE, DRAFT))
    happened = what_happened(plan.counted, plan.base.ttft_slo_s, plan.counted_unread)
    actual, actual_bands = happened if happened is not None else (None, None)
    sides = {BASE: side_of(base), DRAFT: side_of(draft)}
    return WhatIfResult(
        requests=len(plan.rows),
        counted=len(plan.counted),
        seeds=plan.conditions.seeds,
        engines=plan.engines,
        engine_model=plan.engine.engine_model,
        costs=plan.engine.costs,
        kv_tokens=plan.engine.kv_tokens,
        ttft_slo_s=plan.base.ttft_slo_s,
        base=sides[BASE],
        draft=sides[DRAFT],
        differences=differences_of(base, draft),
        bands=bands_of(base, draft, actual_bands),
        actual=actual,
        model_error=model_error(sides[plan.checked_side], own_ttft_s(plan.counted, plan.checked_version)),
        unread=plan.counted_unread,
        coarse_starts=plan.coarse_starts,
    )


def reports_as_json(reports: Reports) -> dict[str, object]:
    """Return the reports as JSON values, to resume a run."""
    fields: dict[str, object] = msgspec.to_builtins(reports)
    return fields


def reports_from_json(value: object) -> Reports:
    """Return stored reports. Unreadable reports are omitted, so that their runs are repeated."""
    try:
        return msgspec.convert(value, prepared(Reports))
    except msgspec.ValidationError:
        return {}
