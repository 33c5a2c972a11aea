"""Changes the state of proposals: for people, and as the actor of the autopilot. Each change is audited."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from django.db import models, transaction
from django.db.models import Count, Q, Value
from django.utils import timezone

from controlplane.advice.evidence import evidence_of
from controlplane.advice.models.advice_proposal import AdvicePrediction, AdviceProposal, ProposalState
from controlplane.fleet.models.pool import AdviceMode, Pool
from controlplane.platform import audit, recorded_change
from controlplane.platform.actor import Actor, program
from controlplane.platform.conflict import ConflictError
from controlplane.platform.field_problems import problem
from controlplane.platform.revisions import bump, locked
from controlplane.platform.role import Role
from controlplane.platform.roles import require
from controlplane.policies.models.policy import Policy
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.policies.publish import delete_draft
from controlplane.policies.roles import require_all_pools
from controlplane.trials.canary import lifecycle as canaries
from controlplane.trials.canary.end import abort
from controlplane.trials.canary.lifecycle import visible_canaries
from controlplane.trials.lifecycle import visible_trials
from controlplane.trials.models.canary import CanaryState
from controlplane.trials.models.shadow import ShadowState
from controlplane.trials.shadow.lifecycle import start_shadow, stop_shadow, visible_shadows
from planning.adviser.autopilot import MODES, UNSETTLED, HoldbackCounts

JOB = "advice"
"""The job that searches, whose shard is the row of the pool."""
ADVISER = program("adviser")
SHADOW_MINUTES = 30
KEPT = 1000
"""Maximum number of settled proposals and abstentions. The oldest are deleted first."""
TRIALS, PROPOSALS = "trials", "proposals"
AUTOPILOTS = (AdviceMode.CANARY, AdviceMode.PROMOTE)


class ProposalError(ConflictError):
    """The proposal's state does not allow the action. The message explains the reason and the fix."""


def visible_proposals(actor: Actor) -> models.QuerySet[AdviceProposal]:
    """Return the proposals of the pools that the actor may see, newest first."""
    proposals = AdviceProposal.objects.select_related(
        "pool__policy__live_version", "base", "version", "shadow", "canary"
    )
    return visible_trials(proposals, actor)


def visible_predictions(actor: Actor) -> models.QuerySet[AdvicePrediction]:
    """Return the predictions of promoted proposals in the pools that the actor may see, newest first."""
    return visible_trials(AdvicePrediction.objects.select_related("pool"), actor)


def attention_counts(actor: Actor) -> Counter[str]:
    """Return the numbers of running TRIALS and of waiting PROPOSALS that the actor may see, in one query."""
    waiting = AdviceProposal.objects.filter(state__in=UNSETTLED)
    kinds: tuple[tuple[str, models.QuerySet[Any]], ...] = (
        (TRIALS, visible_canaries(actor).filter(state=CanaryState.RUNNING)),
        (TRIALS, visible_shadows(actor).filter(state=ShadowState.RUNNING).prefetch_related(None)),
        (PROPOSALS, visible_trials(waiting, actor)),
    )
    first, *others = (
        rows.order_by()
        .annotate(kind=Value(kind))
        .values("kind")
        .annotate(n=Count("pk", distinct=True))
        .values_list("kind", "n")
        for kind, rows in kinds
    )
    totals = Counter[str]()
    for kind, number in first.union(*others, all=True):
        totals[kind] += number
    return totals


def waiting_for(policy: Policy) -> AdviceProposal | None:
    """Return the newest proposal for the policy that waits or is in a canary."""
    waiting = AdviceProposal.objects.filter(pool__policy=policy, state__in=UNSETTLED)
    return waiting.select_related("pool", "version").first()


def on_evidence_of(proposal: AdviceProposal, why: str = "") -> str:
    """Return the reason for the audit."""
    return f"On the evidence of proposal {proposal.pk}{f': {why}' if why else ''}"[:200]


def effective_mode(policy_pools: Sequence[Pool]) -> str:
    """Return the lowest mode of pools with one policy, because a version goes live in all of them."""
    return min((pool.advice for pool in policy_pools), key=MODES.index, default=AdviceMode.OFF.value)


def reject(proposal: AdviceProposal, *, actor: Actor, expected: int | None = None, why: str = "") -> AdviceProposal:
    """Reject an open proposal. Windows before the rejection propose nothing again.

    Raises NotAllowedError unless the actor operates the pool, InvalidFieldsError without a reason, StaleRevisionError,
    and ProposalError.
    """
    require(actor, Role.OPERATOR, proposal.pool)
    if not why.strip():
        raise problem("why", "Say why; the adviser's record keeps it.")
    with transaction.atomic():
        stored = _unsettled(proposal, expected)
        if stored.state == ProposalState.IN_CANARY:
            raise ProposalError("Its canary is running. Abort the canary; that rejects the proposal.")
        settle(stored, ProposalState.REJECTED, actor=actor, reason=why)
    return stored


def try_in_shadow(
    proposal: AdviceProposal, *, actor: Actor, expected: int | None = None, why: str = ""
) -> AdviceProposal:
    """Start a shadow of the proposal's draft. Raises NotAllowedError, InvalidFieldsError, StaleRevisionError,
    ShadowRunsError, and ProposalError.
    """
    require(actor, Role.OPERATOR, proposal.pool)
    with transaction.atomic():
        stored = _unsettled(proposal, expected)
        shadow = start_shadow(
            stored.pool, _draft(stored), minutes=SHADOW_MINUTES, actor=actor, why=on_evidence_of(stored, why)
        )
        bump(stored, {"shadow": shadow})
        stored.shadow = shadow
    return stored


def try_in_canary(
    proposal: AdviceProposal, *, actor: Actor, expected: int | None = None, why: str = ""
) -> AdviceProposal:
    """Start a canary of the proposal's draft, in which every step is taken while the guardrails hold.

    Raises NotAllowedError unless the actor operates all pools of the policy, InvalidFieldsError, StaleRevisionError,
    CanaryOverError, and ProposalError.
    """
    require_all_pools(actor, proposal.pool.policy)
    with transaction.atomic():
        stored = _unsettled(proposal, expected)
        if stored.state == ProposalState.IN_CANARY:
            raise ProposalError("Its canary is running.")
        canary = canaries.start_canary(_draft(stored), actor=actor, advance="steps", why=on_evidence_of(stored, why))
        moved(
            stored, ProposalState.IN_CANARY, "advice.canary", actor=actor, reason=why or "A canary tries it.",
            canary=canary, waits="",
        )  # fmt: skip
    return stored


def stop_autopilot(*, actor: Actor, why: str = "") -> list[str]:
    """Return all pools that try or publish by themselves to proposing, and abort the adviser's trials, at once.

    Return the slugs of the pools. Raises NotAllowedError unless the actor operates all pools.
    """
    require(actor, Role.OPERATOR)
    why = why or "The autopilot was stopped in all pools"
    with transaction.atomic():
        pools = list(Pool.objects.select_for_update().filter(advice__in=AUTOPILOTS).order_by("slug"))
        for pool in pools:
            recorded_change.change(pool, {"advice": AdviceMode.PROPOSE.value}, "advice.stop", actor=actor, why=why)
        trials = AdviceProposal.objects.filter(state__in=UNSETTLED).select_related("pool__policy", "canary", "shadow")
        for proposal in trials:
            canary, shadow = proposal.canary, proposal.shadow
            if canary is not None and canary.state == CanaryState.RUNNING and canary.author_name == ADVISER.name:
                abort(canary, actor=actor, why=why)
                settle(proposal, ProposalState.WITHDRAWN, actor=actor, reason=why)
            elif shadow is not None and shadow.state == ShadowState.RUNNING and shadow.author_id is None:
                stop_shadow(shadow, actor=actor, why=why)
        audit.record(actor, "advice.stop_all", "advice", "", after={"pools": [pool.slug for pool in pools]}, why=why)
    return [pool.slug for pool in pools]


def settle(proposal: AdviceProposal, state: ProposalState, *, actor: Actor, reason: str) -> None:
    """End an unsettled proposal in the caller's transaction. Its draft is deleted unless it was tried or scheduled."""
    moved(proposal, state, f"advice.{_VERBS[state]}", actor=actor, reason=reason, ended_at=timezone.now(), waits="")
    draft = proposal.version
    if draft is not None and draft.published_at is None and proposal.shadow_id is None and proposal.canary_id is None:
        try:
            with transaction.atomic():
                delete_draft(draft, actor=ADVISER, why=on_evidence_of(proposal, reason))
        except ConflictError:
            # A person scheduled or tried it: their work stays.
            return


_VERBS = {
    ProposalState.REJECTED: "reject",
    ProposalState.WITHDRAWN: "withdraw",
    ProposalState.SUPERSEDED: "supersede",
    ProposalState.CONTRADICTED: "contradict",
}


def promoted(proposal: AdviceProposal, at: datetime, holdback: HoldbackCounts, *, actor: Actor, reason: str) -> None:
    """Store that the proposal's version went live, with the predictions that will be measured.

    `holdback` has the counts beside the former version. Call it in the caller's transaction.
    """
    counts = msgspec.to_builtins(holdback)
    moved(
        proposal, ProposalState.PROMOTED, "advice.promote", actor=actor, reason=reason, promoted_at=at, ended_at=at,
        holdback=counts, waits="",
    )  # fmt: skip
    evidence = evidence_of(proposal.evidence)
    AdvicePrediction.objects.bulk_create(
        AdvicePrediction(
            pool=proposal.pool, proposal=proposal, objective=item.objective, predicted=item.change, low=item.low,
            high=item.high, factor=evidence.factor, at=at,
        )
        for _, item in evidence.named
    )  # fmt: skip


def moved(
    proposal: AdviceProposal, state: ProposalState, verb: str, *, actor: Actor, reason: str, **changes: Any
) -> None:
    """Store the proposal's next state with its revision, and audit it. Raises StaleRevisionError."""
    before = {"state": proposal.state}
    changes |= {"state": state, "reason": reason[:400], "ended_by": actor.name}
    for name, value in changes.items():
        setattr(proposal, name, value)
    bump(proposal, changes)
    after = {"state": state.value, "version": proposal.version.number if proposal.version else None}
    audit.record_for(actor, verb, proposal, before=before, after=after, why=on_evidence_of(proposal, reason))


def forget_proposals(at_most: int = KEPT) -> int:
    """Delete the oldest settled proposals beyond `at_most`, with their predictions. Return how many."""
    settled = AdviceProposal.objects.exclude(Q(state__in=UNSETTLED) | Q(predictions__isnull=False))
    kept = list(settled.order_by("-pk").values_list("pk", flat=True)[:at_most])
    if len(kept) < at_most:
        return 0
    return settled.filter(pk__lt=kept[-1]).delete()[0]


def _unsettled(proposal: AdviceProposal, expected: int | None) -> AdviceProposal:
    stored = locked(proposal, expected)
    if stored.state not in UNSETTLED:
        raise ProposalError(f"Proposal {stored.pk} is already {stored.get_state_display().lower()}.")
    return stored


def _draft(proposal: AdviceProposal) -> PolicyVersion:
    if proposal.version is None:
        raise ProposalError("Its draft was deleted.")
    return proposal.version
