"""The options of `simulate` for the source of requests and their arrival times."""

from __future__ import annotations

import argparse
from typing import Any, get_args

from simulator.command.option_values import OptionValues
from simulator.workloads.arrival_pattern import ArrivalPattern, Kind
from simulator.workloads.registry import WORKLOADS, WrongWorkloadError, shape_of

_KINDS: tuple[Kind, ...] = get_args(Kind)
_MOST_CLIENTS = 100_000


def add_request_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options; `settings_of` and `pattern_of` check their values."""
    add = parser.add_argument
    add(
        "--workload-param",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="setting of the generated workload that TRACE names; lists in JSON",
    )
    add(
        "--arrivals",
        default="trace",
        help="trace: recorded times, scaled to --qps; poisson: independent gaps at --qps; closed: each of --clients "
        "sends its next request after its last one has ended (default: trace)",
    )
    add("--clients", help="number of clients in a closed loop")
    add(
        "--think",
        help="mean of the exponential think time between a response and the next request, seconds (default: 0)",
    )


def settings_of(arguments: argparse.Namespace, values: OptionValues) -> dict[str, Any] | None:
    """Return the settings of the workload that TRACE names, None for a file; record a problem if it is neither."""
    name = str(arguments.trace)
    if arguments.trace.is_file():
        if arguments.workload_param:
            values.problem(f"--workload-param: {name} is a file, no generated workload")
        return None
    if name not in WORKLOADS:
        values.problem(f"TRACE: {name}: no such file, and no workload; workloads are {', '.join(sorted(WORKLOADS))}")
        return None
    settings = values.pairs("workload_param")
    try:
        shape_of(name, settings)
    except WrongWorkloadError as error:
        values.problem(f"--workload-param: {error}")
    return settings


def pattern_of(arguments: argparse.Namespace, values: OptionValues) -> ArrivalPattern:
    """Return how requests arrive; records incompatible options."""
    kind = next((item for item in _KINDS if item == arguments.arrivals), None)
    clients, think_s = values.whole("clients", 1, _MOST_CLIENTS), values.from_zero("think")
    if kind is None:
        values.problem(f"--arrivals: {arguments.arrivals!r} is unknown; known are {', '.join(_KINDS)}")
        return ArrivalPattern()
    if kind != "closed":
        if arguments.clients is not None or arguments.think is not None:
            values.problem("--clients, --think: only a closed loop has clients; add --arrivals closed")
        if kind == "poisson" and arguments.qps is None:
            values.problem("--arrivals poisson: needs the rate, --qps")
        return ArrivalPattern(kind=kind)
    if arguments.clients is None:
        values.problem("--arrivals closed: needs the number of clients, --clients")
    if arguments.qps is not None or arguments.goodput:
        values.problem("--arrivals closed: its rate follows from the answers, so --qps and --goodput say nothing")
    return ArrivalPattern(kind=kind, clients=clients or 1, think_s=think_s or 0.0)
