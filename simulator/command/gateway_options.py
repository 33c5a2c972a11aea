"""The options of `simulate` for a pool behind several gateways."""

from __future__ import annotations

import argparse

import msgspec

from simulator.command.option_values import OptionValues
from simulator.runs.simulation_run import OWNER_RTT_S, RunSpec

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
        values.problem("--owner-rtt: nobody is asked with --no-owner")
    if spec.prefill or automated or spec.arms:
        values.problem("--gateways: goes with neither roles, automations nor canaries")
    return msgspec.structs.replace(
        spec, gateways=gateways, owner=not arguments.no_owner, owner_rtt_s=rtt_s or OWNER_RTT_S
    )
