"""Arms of a pool next to its live version, as in its snapshot."""

from __future__ import annotations

from collections.abc import Sequence

from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.policies.upgrade import automation_of, live_routing_of
from controlplane.trials.models.canary import Canary
from controlplane.trials.models.holdback import Holdback, SliceState
from planning.documents.holdback_document import SliceDocument
from routing.policy.policy_document import Stage
from routing.registry import pair_problem
from routing.trials.arms import CANARY, CONTROL, ArmEntry

ALONE = (SliceState.FALLBACK, SliceState.PROBING)
"""States in which no canary gets sessions, because the live policy itself is in doubt."""


def arms_of(live: PolicyVersion | None, canaries: Sequence[Canary], control: Holdback | None) -> tuple[ArmEntry, ...]:
    """Return the arms in the order of assignment. `canaries` are the running canaries, including pools on trial."""
    if live is None:
        return ()
    arms = []
    if control is None or control.state not in ALONE:
        arms += [canary_arm(canary) for canary in canaries if canary.pool_id is None and canary.against_id == live.pk]
    if control is not None and control.share > 0:
        placement = slice_document(live).placement
        if not pair_problem(placement, live_routing_of(live).order.name):
            arms.append(
                ArmEntry(
                    arm=CONTROL,
                    trial_id=control.trial_id,
                    share=control.share,
                    policy_version=live.number,
                    placement=Stage(name=placement),
                )
            )
    return tuple(arms)


def canary_arm(canary: Canary) -> ArmEntry:
    """Return the canary's arm for its step."""
    return ArmEntry(
        arm=CANARY,
        trial_id=canary.key,
        share=canary.share,
        policy_version=canary.version.number,
        placement=live_routing_of(canary.version).placement,
    )


def slice_document(live: PolicyVersion | None) -> SliceDocument:
    """Return the holdback's settings of the live version."""
    return automation_of(live).holdback if live is not None else SliceDocument()
