"""The options of `simulate`, the same for `manage.py simulate` and `python -m simulator`.

All problems are detected before anything runs, and are reported together.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import msgspec

from planning.documents.automation_document import AutomationPolicy
from routing.policy.policy_document import Parameter, RoutingPolicy, Stage
from routing.registry import QUEUE_ORDERS, pair_problem, stage_problems
from simulator.baselines.registry import PLACEMENTS
from simulator.command.canary_options import add_canary_arguments, canary_of
from simulator.command.option_values import OptionValues
from simulator.command.simulate_requests import add_request_arguments, pattern_of, settings_of
from simulator.engine_cache.evictions import EVICTIONS
from simulator.engine_models.engine_profile import (
    EngineProfile,
    UnreadableProfileError,
    profile_named,
    profile_names,
    read_profile,
)
from simulator.engine_models.registry import ENGINE_MODELS
from simulator.runs.policy_file import UnreadablePolicyError, read_automation, read_policy
from simulator.runs.run_task import RunTask
from simulator.runs.simulation_run import OWNER_RTT_S, RunSpec, evaluation_policy
from simulator.runs.stage_parameters import set_parameters
from simulator.workloads.registry import WORKLOADS

MOST_ENGINES = 10_000


class SimulateOptionsError(ValueError):
    """The options are invalid; `problems` has one sentence per problem."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class SimulatePlan(msgspec.Struct, frozen=True, kw_only=True):
    """The runs to execute: one task per placement, order, and seed."""

    tasks: list[RunTask]
    as_list: bool
    """Whether a list of reports was requested (--all)."""
    seeds: int
    jobs: int
    json: Path | None
    notes: list[str]
    """How the files were read, as sentences."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options to `parser` (an argparse or a Django command's parser); `plan_from` checks their values."""
    add_run_arguments(parser)
    add = parser.add_argument
    add("--warmup", default="0", help="number of initial rows that no metric counts")
    add(
        "--automation",
        type=Path,
        metavar="FILE",
        help="automation document (JSON) that replaces the policy file's: planners control the fleet, and the report "
        "lists their plans and changes",
    )
    add_canary_arguments(parser)
    add("--goodput", action="store_true", help="search for the highest rate with 90 %% of requests on time")
    add("--all", action="store_true", help="run every placement with every order (or only the given ones)")
    add("--seeds", default="1", help="number of seeds, starting at --seed, run in parallel; figures are means")
    add(
        "--transfers",
        action="store_true",
        help="let engines fetch KV blocks from each other if the placement does so (mooncake); no live pool does",
    )
    add("--series", action="store_true", help="add a time series of each engine's in-flight tokens to the report")


def add_run_arguments(parser: argparse.ArgumentParser, default_policy: str = "no limits, exact estimates") -> None:
    """Add the options of one run: its requests, policy, and fleet. The policy without a file is given in words."""
    add = parser.add_argument
    add(
        "trace",
        type=Path,
        metavar="TRACE",
        help=f"Mooncake JSONL trace (also .gz), or a generated workload: {', '.join(sorted(WORKLOADS))}",
    )
    add_request_arguments(parser)
    add("--placement", help=f"one of {', '.join(PLACEMENTS)} (default: the policy file's, else least_cost)")
    add("--order", help=f"one of {', '.join(QUEUE_ORDERS)} (default: the policy file's, else fifo)")
    add("--engines", help="number of engines (default: 8, or the sum of --prefill and --decode)")
    add(
        "--prefill",
        metavar="N",
        help="number of prefill engines; the others, or --decode, decode (default: all engines do both)",
    )
    add("--decode", metavar="N", help="number of decode engines")
    add("--qps", help="mean arrivals per second; scales all timestamps (default: as recorded)")
    add("--requests", help="number of rows to use, from the first (default: all)")
    add("--max-input", help="maximum prompt tokens; longer prompts are cut")
    add("--engine-model", default="reference", help=f"one of {', '.join(ENGINE_MODELS)}")
    add("--profile", help=f"engine profile: {', '.join(profile_names())}, or a JSON file (default: the reference)")
    add(
        "--eviction",
        help=f"eviction rule of the prefix cache: {', '.join(EVICTIONS)} (default: the profile's, else lru)",
    )
    add("--slo-ttft", help="TTFT objective in seconds (default: the policy file's, else 5)")
    add("--slo-tpot", help="TPOT objective in seconds (default: none)")
    add("--param", action="append", default=[], metavar="KEY=VALUE", help="setting of the placement, order, or policy")
    add(
        "--policy-file",
        type=Path,
        help="policy document (JSON) as the API returns it; its automations, if any, control the fleet (default: "
        f"{default_policy})",
    )
    add_gateway_arguments(parser)
    add("--seed", default="0", help="seed of block keys (which break ties) and of generated requests")
    add("--jobs", help="maximum number of parallel processes (default: one per core)")
    add("--json", type=Path, metavar="OUT", help="file for the report")


SINGLE_RUN = {
    "warmup": "0",
    "automation": None,
    "canary": None,
    "share": None,
    "goodput": False,
    "all": False,
    "seeds": "1",
    "transfers": False,
    "series": False,
}
"""The values that `plan_from` expects of a parser that only has the options of one run."""


def plan_from(arguments: argparse.Namespace, default: RoutingPolicy | None = None) -> SimulatePlan:
    """Return the plan for the arguments, and `default` without a policy file; raise SimulateOptionsError."""
    values = OptionValues(arguments)
    settings, pattern = settings_of(arguments, values), pattern_of(arguments, values)
    profile = _profile(arguments, values)
    requests, warmup = values.whole("requests", 1), values.whole("warmup", 0) or 0
    if requests is not None and warmup >= requests:
        values.problem(f"--warmup: {warmup} leaves nothing of --requests {requests}")
    model = arguments.engine_model
    file_policy, automation, notes = _documents(arguments, values)
    policies = _policies(arguments, values, profile, file_policy or default)
    canary = canary_of(arguments, values, policies, file_policy)
    if canary is not None:
        notes += canary.notes
    if not arguments.transfers and any(item.placement.name == "mooncake" for item in policies):
        notes.append("mooncake chooses as min_ttft: engines transfer nothing, as in a live pool; see --transfers")
    seed, seeds = values.whole("seed", 0) or 0, values.whole("seeds", 1) or 1
    rates = {"qps": values.above_zero("qps"), "slo_tpot_s": values.above_zero("slo_tpot")}
    spec_fields = {**_fleet(arguments, values), **rates}
    jobs = values.whole("jobs", 1) or os.cpu_count() or 1
    max_input = values.whole("max_input", 1)
    if values.problems:
        raise SimulateOptionsError(values.problems)
    specs = [
        with_gateways(
            RunSpec(
                policy=policy,
                arrivals=pattern,
                warmup=warmup,
                engine_model=model,
                profile=profile,
                seed=seed + number,
                transfers=arguments.transfers,
                keep_series=arguments.series,
                arms=canary.arms(seed + number) if canary is not None else (),
                **spec_fields,  # type: ignore[arg-type]  # one dict of differently typed fields
            ),
            arguments,
            values,
            automated=automation is not None,
        )
        for policy in policies
        for number in range(seeds)
    ]
    # Gateways are checked against the finished run.
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
            spec=spec,
        )
        for spec in specs
    ]
    return SimulatePlan(tasks=tasks, as_list=arguments.all, seeds=seeds, jobs=jobs, json=arguments.json, notes=notes)


def _documents(
    arguments: argparse.Namespace, values: OptionValues
) -> tuple[RoutingPolicy | None, AutomationPolicy | None, list[str]]:
    """Return the file's policy and automations (None if it has none), and notes on how it was read."""
    policy, automation = None, None
    notes: list[str] = []
    try:
        if arguments.policy_file is not None:
            policy_file = read_policy(arguments.policy_file)
            policy, automation = policy_file.routing, policy_file.automation
            notes += policy_file.notes
    except UnreadablePolicyError as error:
        values.problem(f"--policy-file: {error}")
    try:
        if arguments.automation is not None:
            automation, said = read_automation(arguments.automation)
            notes += said
    except UnreadablePolicyError as error:
        values.problem(f"--automation: {error}")
    return policy, automation, notes


def _fleet(arguments: argparse.Namespace, values: OptionValues) -> dict[str, int]:
    """Return the number of engines, and how many of them prefill; record incompatible options."""
    engines, prefill = values.whole("engines", 1, MOST_ENGINES), values.whole("prefill", 1, MOST_ENGINES)
    decode, model = values.whole("decode", 1, MOST_ENGINES), arguments.engine_model
    if model not in ENGINE_MODELS:
        values.problem(f"--engine-model: {model!r} is unknown; known are {', '.join(ENGINE_MODELS)}")
    if arguments.prefill is None and arguments.decode is None:
        return {"engines": engines or 8}
    if model not in ("reference", "pd"):
        values.problem(f"--engine-model: engines of one role have a model of their own; leave out {model}")
    if engines is not None and prefill is None and decode is not None:
        prefill = engines - decode
    elif engines is not None and decode is None and prefill is not None:
        decode = engines - prefill
    if prefill is None or decode is None:
        values.problem("--prefill, --decode: a fleet with roles needs both, or one of them and --engines")
        return {}
    if prefill < 1 or decode < 1 or engines not in (None, prefill + decode):
        values.problem(f"--engines: {engines} are not {prefill} that prefill and {decode} that decode, each 1 or more")
    return {"engines": prefill + decode, "prefill": prefill}


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


def _policies(
    arguments: argparse.Namespace, values: OptionValues, profile: EngineProfile, file_policy: RoutingPolicy | None
) -> list[RoutingPolicy]:
    """Return the policies to run, one per placement and order."""
    slo_s = values.above_zero("slo_ttft")
    policies = []
    for placement, order in _stages(arguments, file_policy):
        if file_policy is None:
            policy = evaluation_policy(placement, order, ttft_slo_s=slo_s or 5.0, profile=profile)
        else:
            policy = msgspec.structs.replace(
                file_policy, placement=placement, order=order, ttft_slo_s=slo_s or file_policy.ttft_slo_s
            )
        # With --all, a parameter is meant for the rules that have it.
        policy, problems = set_parameters(policy, _parameters(values), lenient=arguments.all)
        for problem in [*problems, *stage_problems(policy, PLACEMENTS)]:
            values.problem(problem)
        policies.append(policy)
    return policies


def _stages(arguments: argparse.Namespace, base: RoutingPolicy | None) -> list[tuple[Stage, Stage]]:
    """Return the requested (placement, order) pairs; a stage that the file defines keeps its parameters."""
    placement = base.placement if base is not None else Stage(name="least_cost")
    order = base.order if base is not None else Stage(name="fifo")
    placements = [_named(arguments.placement, placement)]
    orders = [_named(arguments.order, order)]
    if arguments.all and arguments.placement is None:
        placements = [_named(name, placement) for name in PLACEMENTS]
    if arguments.all and arguments.order is None:
        orders = [_named(name, order) for name in QUEUE_ORDERS]
    pairs = [(one, other) for one in placements for other in orders]
    # Named stages must fit together; of all possible pairs, only those that fit are run.
    fit = [pair for pair in pairs if not pair_problem(pair[0].name, pair[1].name, PLACEMENTS)]
    return fit if arguments.all and fit else pairs


def _named(name: str | None, base: Stage) -> Stage:
    return base if name is None or name == base.name else Stage(name=name)


def _parameters(values: OptionValues) -> dict[str, Parameter]:
    parameters: dict[str, Parameter] = {}
    for key, value in values.pairs("param").items():
        if isinstance(value, bool | int | float | str):
            parameters[key] = value
        else:
            values.problem(f"--param: {key} must be a number, a word, true or false")
    return parameters


MOST_GATEWAYS = 64


def add_gateway_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options to `parser`."""
    add = parser.add_argument
    add("--gateways", metavar="N", help="number of gateways that share the pool and its requests equally")
    add("--no-owner", action="store_true", help="each gateway decides alone (default: one decides for all)")
    add(
        "--owner-rtt",
        metavar="S",
        help=f"round trip between a gateway and the pool's owner, seconds (default: {OWNER_RTT_S:g})",
    )


def with_gateways(spec: RunSpec, arguments: argparse.Namespace, values: OptionValues, *, automated: bool) -> RunSpec:
    """Return the run with this number of gateways; record incompatible options."""
    gateways, rtt_s = values.whole("gateways", 1, MOST_GATEWAYS) or 1, values.above_zero("owner_rtt")
    if gateways == 1:
        if arguments.no_owner or rtt_s is not None:
            values.problem("--gateways: name 2 or more, or leave out --no-owner and --owner-rtt")
        return spec
    if arguments.no_owner and rtt_s is not None:
        values.problem("--owner-rtt: goes with an owner, so leave out --no-owner")
    if spec.prefill or automated or spec.arms:
        values.problem("--gateways: goes with neither roles, automations nor canaries")
    return msgspec.structs.replace(
        spec, gateways=gateways, owner=not arguments.no_owner, owner_rtt_s=rtt_s or OWNER_RTT_S
    )
