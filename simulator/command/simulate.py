"""`manage.py simulate` and `python -m simulator`: run policies over a trace under a virtual clock."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import msgspec
from tqdm import tqdm

from routing.values.prepared_struct import prepared
from simulator.command.simulate_options import SimulateOptionsError, SimulatePlan, add_arguments, plan_from
from simulator.command.simulate_table import render, render_canaries, render_changes
from simulator.runs.run_report import RunReport, mean_of
from simulator.runs.run_task import NothingCountedError, RunTask, do_encoded, do_task
from simulator.workloads.registry import WrongWorkloadError
from simulator.workloads.trace import TraceError


def main(argv: Sequence[str], prog: str = "simulate") -> int:
    """Run the command line and return the exit status: 0, or 2 if the arguments are invalid."""
    try:
        plan = plan_from(parser(prog).parse_args(argv))
        for note in plan.notes:
            sys.stderr.write(f"{prog}: {note}\n")
        reports = reports_of(plan)
    except SimulateOptionsError as error:
        for problem in error.problems:
            sys.stderr.write(f"{prog}: {problem}\n")
        return 2
    except (TraceError, WrongWorkloadError, NothingCountedError) as error:
        sys.stderr.write(f"{prog}: {error}\n")
        return 2
    if plan.json is not None:
        _write(plan.json, reports if plan.as_list else reports[0])
    sys.stdout.write(render(reports) + "\n")
    if changes := render_changes(reports):
        sys.stdout.write(changes + "\n")
    if canaries := render_canaries(reports):
        sys.stdout.write(canaries + "\n")
    return 0


def parser(prog: str) -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog=prog, description=__doc__)
    add_arguments(made)
    return made


def reports_of(plan: SimulatePlan) -> list[dict[str, Any]]:
    """Run all tasks and return one report per placement and order, in input order, as plain values."""
    done = [msgspec.to_builtins(report) for report in _run_all(plan)]
    # Tasks are in order of policy, then of seed.
    groups = [done[first : first + plan.seeds] for first in range(0, len(done), plan.seeds)]
    return [mean_of(group) for group in groups]


def _run_all(plan: SimulatePlan) -> list[RunReport]:
    if plan.jobs == 1 or len(plan.tasks) == 1:
        return list(_one_by_one(plan.tasks))
    return _in_children(plan.tasks, plan.jobs)


def _one_by_one(tasks: Sequence[RunTask]) -> Iterator[RunReport]:
    for number, task in enumerate(tasks, start=1):
        name = f"{task.spec.policy.placement.name} + {task.spec.policy.order.name}"
        # disable=None shows the bar on a terminal only.
        with tqdm(total=task.requests, unit="req", desc=f"{number}/{len(tasks)} {name}", disable=None) as bar:

            def step(requests: int, note: str, bar: tqdm = bar) -> None:
                if note:
                    bar.set_postfix_str(note)
                bar.update(requests)

            yield do_task(task, step)


def _in_children(tasks: Sequence[RunTask], jobs: int) -> list[RunReport]:
    """Run the tasks in spawned processes, at most `jobs` at once."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(jobs, len(tasks)), mp_context=context) as children:
        waiting = {children.submit(do_encoded, msgspec.json.encode(task)): at for at, task in enumerate(tasks)}
        reports: dict[int, RunReport] = {}
        try:
            for future in tqdm(as_completed(waiting), total=len(tasks), unit="run", disable=None):
                reports[waiting[future]] = msgspec.json.decode(future.result(), type=prepared(RunReport))
        except BaseException:
            # After Ctrl-C or a failed run, tasks that have not begun must not start.
            children.shutdown(wait=False, cancel_futures=True)
            raise
    return [reports[at] for at in range(len(tasks))]


def _write(path: Path, result: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(result)) + b"\n")
