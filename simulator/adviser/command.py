"""`manage.py advise`: propose a better policy for recorded traffic, with its evidence, or abstain."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
from tqdm import tqdm

from planning.adviser.prediction import Practical
from planning.adviser.trace_windows import ShortTraceError
from routing.policy.policy_document import RoutingPolicy
from simulator.adviser.advice_table import render_advice
from simulator.command.option_values import OptionValues
from simulator.command.simulate_options import SINGLE_RUN, SimulateOptionsError, add_run_arguments, plan_from
from simulator.workloads.registry import WrongWorkloadError
from simulator.workloads.trace import TraceError

DEFAULT_BUDGET_S = 600.0
_INTERRUPTED = 130


def main(argv: Sequence[str], prog: str = "advise") -> int:
    """Run the command line and return the exit status: 0, 2 if arguments are invalid, 130 after Ctrl-C."""
    # Here, because help and completion import this module for its parser, and the search imports Optuna.
    from simulator.adviser.search import AdvicePlan, advise

    options = parser(prog).parse_args(argv)
    try:
        single = plan_from(options, RoutingPolicy())
        for note in single.notes:
            sys.stderr.write(f"{prog}: {note}\n")
        source, (budget_s, runs, practical) = single.tasks[0], _limits(options)
        if source.automation is not None:
            sys.stderr.write(f"{prog}: automations do not run here: the number of engines is fixed\n")
        plan = AdvicePlan(source=source, budget_s=budget_s, runs=runs, jobs=single.jobs, practical=practical)
        with tqdm(unit="run", disable=None) as bar:
            advice = advise(plan, lambda runs: bar.update(runs - bar.n))
    except SimulateOptionsError as error:
        for problem in error.problems:
            sys.stderr.write(f"{prog}: {problem}\n")
        return 2
    except (TraceError, WrongWorkloadError, ShortTraceError) as error:
        sys.stderr.write(f"{prog}: {error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write(f"{prog}: interrupted\n")
        return _INTERRUPTED
    if single.json is not None:
        _write(single.json, advice)
    sys.stdout.write(render_advice(advice) + "\n")
    if options.out is not None and advice.proposal is not None:
        _write(options.out, advice.proposal.policy)
        sys.stdout.write(f"Draft: {options.out}\n")
    return 0


def parser(prog: str) -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog=prog, description=__doc__)
    add_run_arguments(made, "that of a new pool")
    made.set_defaults(**SINGLE_RUN)
    add = made.add_argument
    add("--budget-s", help=f"CPU seconds of all simulations together (default: {DEFAULT_BUDGET_S:g})")
    add("--runs", help="maximum number of simulations; the same number and seed give the same result")
    add("--threshold", help="smallest on-time share that is worth a proposal, 0..1 (default: 0.02)")
    add("--ttft-threshold", help="smallest relative reduction of the mean TTFT that is, 0..1 (default: 0.1)")
    add("--out", type=Path, metavar="POLICY", help="file for the proposed policy document; not written without one")
    return made


def _limits(options: argparse.Namespace) -> tuple[float, int | None, Practical]:
    """Return the budget, the maximum number of runs, and the practical sizes; raise SimulateOptionsError."""
    values, default = OptionValues(options), Practical()
    budget_s, runs = values.above_zero("budget_s"), values.whole("runs", 1)
    share, ratio = values.above_zero("threshold"), values.above_zero("ttft_threshold")
    for option, value in (("--threshold", share), ("--ttft-threshold", ratio)):
        if value is not None and value >= 1:
            values.problem(f"{option}: {value:g} is not below 1")
    if options.arrivals != "trace":
        values.problem("--arrivals: windows of a trace keep their recorded times; leave it out")
    if values.problems:
        raise SimulateOptionsError(values.problems)
    return budget_s or DEFAULT_BUDGET_S, runs, Practical(share=share or default.share, ratio=ratio or default.ratio)


def _write(path: Path, result: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(result)) + b"\n")
