"""The placement of a live pool whose stored policy names a baseline."""

from __future__ import annotations

import msgspec

from routing.policy.policy_document import RoutingPolicy, Stage
from routing.registry import BASELINES


def live_placement(stage: Stage) -> Stage:
    """Return the placement that a live pool follows: in place of a baseline, that of a new pool.

    A live policy with a baseline cannot be written, but a stored one may name one and has to go on routing.
    """
    return RoutingPolicy().placement if stage.name in BASELINES else stage


def as_live(policy: RoutingPolicy) -> tuple[RoutingPolicy, str]:
    """Return the policy as a live pool follows it, and in one sentence what differs from the document ("": nothing)."""
    placement = live_placement(policy.placement)
    if placement == policy.placement:
        return policy, ""
    said = (
        f"Placement {policy.placement.name!r} is a baseline for simulation and what-if only; requests use "
        f"{placement.name!r}, the default placement."
    )
    return msgspec.structs.replace(policy, placement=placement), said
