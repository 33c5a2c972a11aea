"""Replace a baseline that the stored policy of a live pool names."""

from __future__ import annotations

import msgspec

from routing.policy.policy_document import RoutingPolicy, Stage
from routing.registry import BASELINES


def live_placement(stage: Stage) -> Stage:
    """Return the placement of a live pool, replacing a baseline with the default placement of new pools.

    A live policy with a baseline cannot be saved, but a stored one can name one and must keep routing.
    """
    return RoutingPolicy().placement if stage.name in BASELINES else stage


def as_live(policy: RoutingPolicy) -> tuple[RoutingPolicy, str]:
    """Return the policy that a live pool follows, and how it differs from the document ("" if equal)."""
    placement = live_placement(policy.placement)
    if placement == policy.placement:
        return policy, ""
    said = (
        f"Placement {policy.placement.name!r} is a baseline for simulation and what-if only; requests use "
        f"{placement.name!r}, the default placement."
    )
    return msgspec.structs.replace(policy, placement=placement), said
