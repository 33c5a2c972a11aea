"""The options of `simulate` for a canary: another policy's placement decides for a share of the sessions."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from routing.policy.policy_document import RoutingPolicy, Stage
from routing.registry import stage_problems
from routing.trials.arms import CANARY, ArmEntry
from simulator.baselines.registry import PLACEMENTS
from simulator.command.option_values import OptionValues
from simulator.runs.policy_file import PolicyDocuments, UnreadablePolicyError, read_policy

DEFAULT_SHARE = 0.1
CANARY_VERSION = 2
"""Policy version of the canary's decisions; the router's first version is the live one."""


class CanaryTrial(msgspec.Struct, frozen=True, kw_only=True):
    """The candidate that runs alongside the live policy."""

    placement: Stage
    share: float
    notes: tuple[str, ...] = ()
    """How the file was read, and which parts of it are ignored, as sentences."""

    def arms(self, seed: int) -> tuple[ArmEntry, ...]:
        """Return the arms besides the live one; another seed selects other sessions."""
        entry = ArmEntry(
            arm=CANARY,
            trial_id=f"simulated canary {seed}",
            share=self.share,
            policy_version=CANARY_VERSION,
            placement=self.placement,
        )
        return (entry,)


def add_canary_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options; `canary_of` checks their values."""
    parser.add_argument(
        "--canary",
        type=Path,
        metavar="FILE",
        help="policy document (JSON) whose placement decides for a share of the sessions, on the same fleet and queue; "
        "both arms are compared as in a canary",
    )
    parser.add_argument(
        "--share", help=f"share of sessions for the canary, above 0 and below 1 (default: {DEFAULT_SHARE})"
    )


def canary_of(
    arguments: argparse.Namespace,
    values: OptionValues,
    policies: Sequence[RoutingPolicy],
    file_policy: RoutingPolicy | None,
) -> CanaryTrial | None:
    """Return the candidate to run alongside the policy (None if there is none); record problems."""
    share = values.above_zero("share")
    if arguments.canary is None:
        if arguments.share is not None:
            values.problem("--share: there is no --canary that would have it")
        return None
    if share is not None and share >= 1:
        values.problem(f"--share: {share:g} leaves the policy no session to be compared with; give less than 1")
    for name in ("all", "goodput"):
        if getattr(arguments, name):
            values.problem(f"--canary: does not go with --{name}; it compares with one policy at one rate")
    try:
        draft = read_policy(arguments.canary)
    except UnreadablePolicyError as error:
        values.problem(f"--canary: {error}")
        return None
    placement = draft.routing.placement
    for policy in policies:
        for wrong in _unfit(placement, policy):
            values.problem(f"--canary: {wrong}")
    notes = [*draft.notes, *_untried(arguments.canary, draft, file_policy)]
    return CanaryTrial(placement=placement, share=share or DEFAULT_SHARE, notes=tuple(notes))


def _unfit(placement: Stage, policy: RoutingPolicy) -> Iterator[str]:
    """Yield the reasons why the placement cannot run alongside the policy."""
    if placement == policy.placement:
        yield f"its placement is {placement.name} with the same parameters, so nothing would tell the arms apart"
    # The policy's own faults are reported where it is read.
    known = stage_problems(policy, PLACEMENTS)
    tried = msgspec.structs.replace(policy, placement=placement)
    yield from (stage_problem for stage_problem in stage_problems(tried, PLACEMENTS) if stage_problem not in known)


def _untried(path: Path, draft: PolicyDocuments, live: RoutingPolicy | None) -> Iterator[str]:
    """Yield the ignored settings of the file: those that differ from the policy file, which controls the queue."""
    if live is None:
        return
    names = [name for name in RoutingPolicy.__struct_fields__ if name not in ("placement", "schema_version")]
    differing = [name for name in names if getattr(draft.routing, name) != getattr(live, name)]
    if differing:
        yield f"{path}: only its placement is tried; it differs in {', '.join(differing)} too"
