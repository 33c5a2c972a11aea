"""One task of `simulate`, possibly with automations or a search for its goodput. It can be sent to a child process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from planning.documents.automation_document import AutomationPolicy
from planning.facts.reason import Reason
from routing.values.prepared_struct import prepared
from simulator.automation.fleet_automation import FleetAutomation
from simulator.fleet.fleet_simulation import FleetSimulation, Watch
from simulator.runs.goodput import find_goodput
from simulator.runs.run_report import PlanRow, RunReport, report_of
from simulator.runs.simulation_run import RunSpec, run, simulation_of
from simulator.workloads.prepared_workload import Workload
from simulator.workloads.registry import generate_workload


def run_automated(
    spec: RunSpec, workload: Workload, policy: AutomationPolicy, watch: Watch | None = None
) -> tuple[FleetSimulation, FleetAutomation]:
    """Run to the end with these automations; return the simulation and its automation."""
    simulation = simulation_of(spec, workload)
    placement = spec.policy.placement
    rings = int(placement.params.get("d", 2)) if placement.name == "dual_map" else 0
    automation = FleetAutomation(policy, spec.profile, rings=rings)
    automation.attach(simulation)
    simulation.run(watch)
    return simulation, automation


def plan_rows(automation: FleetAutomation) -> list[PlanRow]:
    """Return the plans in chronological order."""
    rows = [
        PlanRow(plan.at_s, "scaling", f"{plan.engines} to {plan.target} engines", _why(plan.reasons))
        for plan in automation.scaling
    ]
    rows += [PlanRow(plan.at_s, "health", ", ".join(plan.changed), _why(plan.reasons)) for plan in automation.health]
    for moved in automation.rebalance.plans:
        queued_requests = sum(move.at_most for move in moved.moves)
        what = f"{len(moved.wider)} prefixes wider, {len(moved.narrower)} narrower, {queued_requests} requests may move"
        rows.append(PlanRow(moved.at_s, "rebalance", what, _why(moved.reasons)))
    for ratio in automation.ratio:
        if ratio.role_changes:
            what = ", ".join(f"{change.engine_id} to {change.after}" for change in ratio.role_changes)
            rows.append(PlanRow(ratio.at_s, "ratio", what, _why(ratio.reasons)))
    return sorted(rows, key=lambda row: (row.at_s, row.automation))


def _why(reasons: Iterable[Reason]) -> str:
    return "; ".join(reason.text for reason in reasons)


class RunTask(msgspec.Struct, frozen=True, kw_only=True):
    """A run and its source of requests: a file, or the name and settings of a generated workload."""

    trace: str
    settings: dict[str, Any] | None = None
    """Settings of a generated workload; None if `trace` is a file."""
    requests: int | None
    max_input: int | None
    goodput: bool
    automation: AutomationPolicy | None = None
    """Automations of the pool during the run; not used in a goodput search."""
    spec: RunSpec


class NothingCountedError(ValueError):
    """The warm-up is as long as the trace."""


def do_task(task: RunTask, on_step: Callable[[int, str], None] | None = None) -> RunReport:
    """Run the task. `on_step` receives the number of newly arrived requests and, in a goodput search, the tried rate.

    Raises TraceError on an invalid trace, WrongWorkloadError on invalid settings of a generated one, and
    NothingCountedError if the warm-up leaves no requests.
    """
    workload = workload_of(task)
    if task.spec.warmup >= len(workload):
        raise NothingCountedError(f"--warmup: {task.spec.warmup} leaves nothing of the trace's {len(workload)} rows")
    seen = 0

    def watch(simulation: FleetSimulation) -> bool:
        nonlocal seen
        if on_step is not None:
            on_step(len(simulation.history) - seen, "")
            seen = len(simulation.history)
        return False

    started = time.perf_counter()
    if task.automation is None:
        simulation, automation = run(task.spec, workload, watch), None
    else:
        simulation, automation = run_automated(task.spec, workload, task.automation, watch)
    # Counts the requests since the last sample.
    watch(simulation)
    report = report_of(task.spec, workload, simulation, time.perf_counter() - started)
    if automation is not None and report.detail is not msgspec.UNSET:
        plans = plan_rows(automation)
        detail = msgspec.structs.replace(report.detail, plans=plans, engine_changes=automation.changes)
        report = msgspec.structs.replace(report, detail=detail)
    if not task.goodput:
        return report
    goodput = find_goodput(
        task.spec,
        workload,
        None if on_step is None else lambda qps, passed: on_step(0, f"{qps:.1f} QPS {'holds' if passed else 'fails'}"),
    )
    return msgspec.structs.replace(report, goodput_qps=goodput.by_requests, goodput_both_qps=goodput.by_both)


def do_encoded(task: bytes) -> bytes:
    """Run a task given as JSON and return its report as JSON; used in child processes."""
    return msgspec.json.encode(do_task(msgspec.json.decode(task, type=prepared(RunTask))))


def workload_of(task: RunTask) -> Workload:
    """Return the task's requests, generated once and cached; raise TraceError or WrongWorkloadError."""
    # As bytes, since a dict cannot be a key of the cache.
    settings = None if task.settings is None else msgspec.json.encode(task.settings)
    return _workload(task.trace, settings, task.requests, task.max_input, task.spec.seed)


@lru_cache(maxsize=2)
def _workload(trace: str, settings: bytes | None, requests: int | None, max_input: int | None, seed: int) -> Workload:
    if settings is None:
        return Workload.read(Path(trace), requests=requests, max_input=max_input, seed=seed)
    rows = generate_workload(trace, seed=seed, rows=requests, settings=msgspec.json.decode(settings))
    return Workload(rows, max_input=max_input, seed=seed)
