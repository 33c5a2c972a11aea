"""`manage.py advise`: propose a better policy for recorded traffic, with its evidence, or abstain."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from tqdm import tqdm

from planning.adviser.fleet_shape import FleetRange, FleetShape
from planning.adviser.prediction import Practical
from planning.adviser.trace_windows import ShortTraceError
from planning.adviser.verdict import Advice
from planning.documents.automation_document import AutomationPolicy
from planning.documents.automation_mode import OFF
from routing.policy.policy_document import RoutingPolicy
from simulator.adviser.advice_table import render_advice
from simulator.baselines.registry import PLACEMENTS
from simulator.command.option_values import OptionValues
from simulator.command.simulate_options import (
    MOST_ENGINES,
    SINGLE_RUN,
    SimulateOptionsError,
    SimulatePlan,
    add_run_arguments,
    plan_from,
)
from simulator.runs.goodput import find_goodput
from simulator.runs.run_task import RunTask, workload_of
from simulator.workloads.registry import WrongWorkloadError
from simulator.workloads.trace import TraceError

if TYPE_CHECKING:
    from simulator.adviser.search import AdvicePlan

DEFAULT_CPU_MINUTES = 10.0
GOODPUT_SHARE = 0.2
"""Share of the budget that the goodput of the result may take."""
_GOODPUT_RUNS = 24
_SECONDS_PER_REQUEST = 2e-4
_INTERRUPTED = 130


class PredictedRange(msgspec.Struct, frozen=True):
    """A predicted change: of shares in 0..1, of times and engine hours relative to the live policy's."""

    low: float
    mid: float
    high: float


class AdviceReport(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON report: a summary, and the advice with all figures."""

    abstained: bool
    policy: RoutingPolicy
    """The proposed policy; the live one if there is no proposal."""
    engines: int
    prefill: int
    """The fleet that it was predicted with."""
    predicted: dict[str, PredictedRange]
    """Changes by objective; empty without a proposal."""
    goodput_qps: float | None
    goodput_both_qps: float | None
    """Largest rates at which the policy serves 90 % of the requests, and of both requests and prompt tokens, on time;
    None if the trace is too long for the budget.
    """
    cpu_s: float
    evaluations: int
    advice: Advice


def main(argv: Sequence[str], prog: str = "advise") -> int:
    """Run the command line and return the exit status: 0, 2 if arguments are invalid, 130 after Ctrl-C."""
    # Here, because help and completion import this module for its parser, and the search imports Optuna.
    from simulator.adviser.search import advise

    options = parser(prog).parse_args(argv)
    try:
        single = _single(options)
        for note in single.notes:
            sys.stderr.write(f"{prog}: {note}\n")
        plan = _plan(options, single)
        if plan.source.automation is not None:
            sys.stderr.write(f"{prog}: automations do not run here: each run has a fixed number of engines\n")
        with tqdm(unit="run", disable=None) as bar:
            advice = advise(plan, lambda runs: bar.update(runs - bar.n))
        if single.json is not None:
            _write(single.json, _report(advice, plan.source))
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
    add(
        "--from", dest="live", metavar="LIVE", help="live policy: a placement, as --placement, or a policy file (.json)"
    )
    add("--engines-min", metavar="N", help="smallest fleet that can be proposed (default: the live one)")
    add("--engines-max", metavar="N", help="largest fleet that can be proposed (default: the live one)")
    add("--prefill-min", metavar="N", help="smallest number of prefill engines (default: the live one)")
    add("--prefill-max", metavar="N", help="largest number of prefill engines (default: the live one)")
    add("--cpu-minutes", help=f"CPU minutes of all simulations together (default: {DEFAULT_CPU_MINUTES:g})")
    add("--runs", help="maximum number of simulations; the same number and seed give the same result")
    add("--threshold", help="smallest on-time share that is worth a proposal, 0..1 (default: 0.02)")
    add("--ttft-threshold", help="smallest relative reduction of the mean TTFT that is, 0..1 (default: 0.1)")
    add("--out", type=Path, metavar="POLICY", help="file for the proposed policy document; not written without one")
    return made


def _single(options: argparse.Namespace) -> SimulatePlan:
    """Return the run of the live policy, whose name or file `--from` can give; raise SimulateOptionsError."""
    if options.live is not None:
        if options.placement is not None or options.policy_file is not None:
            raise SimulateOptionsError(["--from: it replaces --placement and --policy-file; leave one out"])
        if options.live in PLACEMENTS:
            options.placement = options.live
        else:
            options.policy_file = Path(options.live)
    return plan_from(options, RoutingPolicy())


def _plan(options: argparse.Namespace, single: SimulatePlan) -> AdvicePlan:
    """Return the search for these options; raise SimulateOptionsError."""
    from simulator.adviser.search import AdvicePlan

    values, default, source = OptionValues(options), Practical(), single.tasks[0]
    minutes, runs = values.above_zero("cpu_minutes"), values.whole("runs", 1)
    share, ratio = values.above_zero("threshold"), values.above_zero("ttft_threshold")
    for option, value in (("--threshold", share), ("--ttft-threshold", ratio)):
        if value is not None and value >= 1:
            values.problem(f"{option}: {value:g} is not below 1")
    if options.arrivals != "trace":
        values.problem("--arrivals: windows of a trace keep their recorded times; leave it out")
    fleets = _fleets(values, FleetShape(source.spec.engines, source.spec.prefill), source.automation)
    if values.problems:
        raise SimulateOptionsError(values.problems)
    budget_s = (minutes or DEFAULT_CPU_MINUTES) * 60
    practical = Practical(
        share=share or default.share,
        ratio=ratio or default.ratio,
        attainment=source.automation.scaling.attainment if source.automation else default.attainment,
    )
    return AdvicePlan(
        source=source,
        budget_s=budget_s * (1 if single.json is None else 1 - GOODPUT_SHARE),
        runs=runs,
        jobs=single.jobs,
        practical=practical,
        fleets=fleets,
    )


def _fleets(values: OptionValues, live: FleetShape, automation: AutomationPolicy | None) -> FleetRange:
    """Return the fleets that can be proposed, within the bounds of the policy file's automations."""
    engines = _bounds(values, "engines", live.engines)
    prefill = _bounds(values, "prefill", live.prefill)
    documents = automation or AutomationPolicy()
    scaling, ratio = documents.scaling, documents.ratio
    if automation is not None and scaling.mode != OFF and engines[0] < engines[1]:
        if engines[0] < scaling.min_engines:
            values.problem(f"--engines-min: {engines[0]} is below the automation's minimum of {scaling.min_engines}")
        if engines[1] > scaling.max_engines:
            values.problem(f"--engines-max: {engines[1]} is above the automation's maximum of {scaling.max_engines}")
    if not live.prefill:
        if prefill != (0, 0):
            values.problem("--prefill-min, --prefill-max: the live fleet has no roles; give --prefill")
        return FleetRange(live=live, engines=engines)
    if automation is not None and prefill[0] < min(ratio.min_prefill, live.prefill):
        values.problem(f"--prefill-min: {prefill[0]} is below the automation's minimum of {ratio.min_prefill}")
    decode = min(ratio.min_decode, live.engines - live.prefill)
    if engines[0] < prefill[0] + decode:
        values.problem(f"--engines-min: {engines[0]} are fewer than {prefill[0]} that prefill and {decode} that decode")
    return FleetRange(live=live, engines=engines, prefill=prefill, least_decode=decode)


def _bounds(values: OptionValues, name: str, live: int) -> tuple[int, int]:
    """Return the bounds of a number of engines, which include the live one; record a problem if they do not."""
    low = values.whole(f"{name}_min", 1, MOST_ENGINES) or live
    high = values.whole(f"{name}_max", 1, MOST_ENGINES) or live
    if not low <= live <= high:
        values.problem(f"--{name}-min, --{name}-max: {low} to {high} does not include the live fleet's {live}")
    return low, high


def _report(advice: Advice, source: RunTask) -> AdviceReport:
    """Return the report, with the goodput of the result if the trace is short enough for its share of the budget."""
    proposal, workload = advice.proposal, workload_of(source)
    policy, fleet = (advice.live, advice.fleet) if proposal is None else (proposal.policy, proposal.fleet)
    spec = msgspec.structs.replace(source.spec, policy=policy, engines=fleet.engines, prefill=fleet.prefill)
    started, goodput = time.process_time(), None
    if len(workload) * _GOODPUT_RUNS * _SECONDS_PER_REQUEST <= advice.budget_s * GOODPUT_SHARE / (1 - GOODPUT_SHARE):
        goodput = find_goodput(spec, workload)
    changes = () if proposal is None else proposal.changes
    return AdviceReport(
        abstained=proposal is None,
        policy=policy,
        engines=fleet.engines,
        prefill=fleet.prefill,
        predicted={item.objective.name: PredictedRange(item.low, item.change, item.high) for item in changes},
        goodput_qps=None if goodput is None else goodput.by_requests,
        goodput_both_qps=None if goodput is None else goodput.by_both,
        cpu_s=advice.cpu_s + time.process_time() - started,
        evaluations=advice.runs + (0 if goodput is None else goodput.runs),
        advice=advice,
    )


def _write(path: Path, result: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(result)) + b"\n")
