"""The options of `simulate`, the same for `manage.py simulate` and `python -m simulator`.

Every fault is found before anything runs, and all are told at once.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import msgspec

from kvstore.evictions import EVICTIONS
from planning.automation_document import AutomationPolicy
from routing.policy_document import Parameter, RoutingPolicy, Stage
from routing.registry import PLACEMENTS, QUEUE_ORDERS, pair_problem, stage_problems
from simulator.automated_run import UnreadableAutomationError, read_automation
from simulator.engine_models.registry import ENGINE_MODELS
from simulator.engine_profile import EngineProfile, UnreadableProfileError, profile_named, read_profile
from simulator.option_values import OptionValues
from simulator.run_task import RunTask
from simulator.simulate_requests import add_request_arguments, pattern_of, settings_of
from simulator.simulation_run import RunSpec, evaluation_policy
from simulator.stage_parameters import set_parameters
from simulator.workloads.registry import WORKLOADS


class SimulateOptionsError(ValueError):
    """The options cannot be run; `problems` has one sentence for each fault."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class SimulatePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be run: one task per placement, order and seed."""

    tasks: list[RunTask]
    as_list: bool
    """Whether a list of reports was asked for (--all)."""
    seeds: int
    jobs: int
    json: Path | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options to `parser` (an argparse or a Django command's parser); values are checked by `plan_from`."""
    add = parser.add_argument
    add(
        "trace",
        type=Path,
        metavar="TRACE",
        help=f"Mooncake JSONL trace, .gz too, or a generated workload: {', '.join(sorted(WORKLOADS))}",
    )
    add_request_arguments(parser)
    add("--placement", help=f"one of {', '.join(PLACEMENTS)} (default: the policy file's, else least_cost)")
    add("--order", help=f"one of {', '.join(QUEUE_ORDERS)} (default: the policy file's, else fifo)")
    add("--engines", default="8", help="engines in the fleet")
    add("--qps", help="mean arrivals per second, by scaling all timestamps (default: as recorded)")
    add("--requests", help="first rows only")
    add("--warmup", default="0", help="first rows that no metric counts")
    add("--max-input", help="cut prompts to this many tokens")
    add("--engine-model", default="reference", help=f"one of {', '.join(ENGINE_MODELS)}")
    add("--profile", help="engine figures: a name in simulator/profiles/ or a JSON file (default: the reference)")
    add(
        "--eviction",
        help=f"which cached block goes: {', '.join(EVICTIONS)} (default: the profile's, else lru)",
    )
    add("--slo-ttft", help="time to first token that is on time, seconds (default: the policy file's, else 5)")
    add("--slo-tbt", help="mean time between tokens that is on time, seconds (default: any)")
    add("--param", action="append", default=[], metavar="KEY=VALUE", help="setting of the placement, order or policy")
    add("--policy-file", type=Path, help="routing policy document, JSON; without it no limits and exact estimates")
    add(
        "--automation",
        type=Path,
        metavar="FILE",
        help="automation document, JSON: planners steer the fleet, and the report tells their plans",
    )
    add("--goodput", action="store_true", help="search the largest rate with 90 %% on time")
    add("--all", action="store_true", help="every placement with every order (or those named)")
    add("--seed", default="0", help="salts the block keys, and so breaks ties differently; of generated requests too")
    add("--seeds", default="1", help="so many seeds from --seed on, in parallel; figures are their means")
    add("--jobs", help="processes at once (default: one per core)")
    add("--series", action="store_true", help="add each engine's outstanding tokens over time to the report")
    add("--json", type=Path, metavar="OUT", help="write the report here")


def plan_from(arguments: argparse.Namespace) -> SimulatePlan:
    """Return what the parsed arguments ask for; raises SimulateOptionsError with every fault."""
    values = OptionValues(arguments)
    settings, pattern = settings_of(arguments, values), pattern_of(arguments, values)
    profile = _profile(arguments, values)
    requests, warmup = values.whole("requests", 1), values.whole("warmup", 0) or 0
    if requests is not None and warmup >= requests:
        values.problem(f"--warmup: {warmup} leaves nothing of --requests {requests}")
    model = arguments.engine_model
    if model not in ENGINE_MODELS:
        values.problem(f"--engine-model: {model!r} is unknown; known are {', '.join(ENGINE_MODELS)}")
    policies = _policies(arguments, values, profile)
    seed, seeds = values.whole("seed", 0) or 0, values.whole("seeds", 1) or 1
    spec_fields = {
        "engines": values.whole("engines", 1, 10_000) or 1,
        "qps": values.above_zero("qps"),
        "slo_tbt_s": values.above_zero("slo_tbt"),
    }
    automation = _automation(arguments, values)
    jobs = values.whole("jobs", 1) or os.cpu_count() or 1
    max_input = values.whole("max_input", 1)
    if values.problems:
        raise SimulateOptionsError(values.problems)
    tasks = [
        RunTask(
            trace=str(arguments.trace),
            settings=settings,
            requests=requests,
            max_input=max_input,
            goodput=arguments.goodput,
            automation=automation,
            spec=RunSpec(
                policy=policy,
                arrivals=pattern,
                warmup=warmup,
                engine_model=model,
                profile=profile,
                seed=seed + number,
                keep_series=arguments.series,
                **spec_fields,  # type: ignore[arg-type]  # one dict of differently typed fields
            ),
        )
        for policy in policies
        for number in range(seeds)
    ]
    return SimulatePlan(tasks=tasks, as_list=arguments.all, seeds=seeds, jobs=jobs, json=arguments.json)


def _automation(arguments: argparse.Namespace, values: OptionValues) -> AutomationPolicy | None:
    if arguments.automation is None:
        return None
    try:
        return read_automation(arguments.automation)
    except UnreadableAutomationError as error:
        values.problem(f"--automation: {error}")
        return None


def _profile(arguments: argparse.Namespace, values: OptionValues) -> EngineProfile:
    name, eviction = arguments.profile, arguments.eviction
    profile = EngineProfile()
    try:
        if name is not None:
            profile = read_profile(Path(name)) if name.endswith(".json") else profile_named(name)
    except UnreadableProfileError as error:
        values.problem(f"--profile: {error}")
    if eviction is None:
        return profile
    if eviction not in EVICTIONS:
        values.problem(f"--eviction: {eviction!r} is unknown; known are {', '.join(EVICTIONS)}")
    return msgspec.structs.replace(profile, eviction=eviction)


def _policies(arguments: argparse.Namespace, values: OptionValues, profile: EngineProfile) -> list[RoutingPolicy]:
    """Return the policies to run, one per placement and order."""
    slo_s = values.above_zero("slo_ttft")
    file_policy = _policy_file(arguments.policy_file, values)
    policies = []
    for placement, order in _stages(arguments, file_policy):
        if file_policy is None:
            policy = evaluation_policy(placement, order, ttft_slo_s=slo_s or 5.0, profile=profile)
        else:
            policy = msgspec.structs.replace(
                file_policy, placement=placement, order=order, ttft_slo_s=slo_s or file_policy.ttft_slo_s
            )
        policy, problems = set_parameters(policy, _parameters(arguments.param, values), lenient=arguments.all)
        for problem in [*problems, *stage_problems(policy)]:
            values.problem(problem)
        policies.append(policy)
    return policies


def _stages(arguments: argparse.Namespace, base: RoutingPolicy | None) -> list[tuple[Stage, Stage]]:
    """Return the (placement, order) pairs that were asked for; a stage of the file keeps its parameters."""
    placement = base.placement if base is not None else Stage(name="least_cost")
    order = base.order if base is not None else Stage(name="fifo")
    placements = [_named(arguments.placement, placement)]
    orders = [_named(arguments.order, order)]
    if arguments.all and arguments.placement is None:
        placements = [_named(name, placement) for name in PLACEMENTS]
    if arguments.all and arguments.order is None:
        orders = [_named(name, order) for name in QUEUE_ORDERS]
    pairs = [(one, other) for one in placements for other in orders]
    # What was named must go together; of all pairs only those that do are run.
    return [pair for pair in pairs if not (arguments.all and pair_problem(pair[0].name, pair[1].name))] or pairs


def _named(name: str | None, base: Stage) -> Stage:
    return base if name is None or name == base.name else Stage(name=name)


def _policy_file(path: Path | None, values: OptionValues) -> RoutingPolicy | None:
    if path is None:
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=RoutingPolicy)
    except OSError as error:
        values.problem(f"--policy-file: {path} cannot be read: {error.strerror}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        values.problem(f"--policy-file: {path} is no routing policy: {error}")
    return None


def _parameters(pairs: list[str], values: OptionValues) -> dict[str, Parameter]:
    parameters: dict[str, Parameter] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not key or not equals:
            values.problem(f"--param: {pair!r} is not KEY=VALUE")
            continue
        try:
            value = msgspec.json.decode(text)
        except msgspec.DecodeError:
            value = text
        if not isinstance(value, bool | int | float | str):
            values.problem(f"--param: {key} must be a number, a word, true or false")
            continue
        parameters[key] = value
    return parameters
