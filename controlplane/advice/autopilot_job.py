"""Follows each pool's proposal: observes its draft, trials, and holdback, and takes the next step of the autopilot."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial

from celery import shared_task
from django.db import transaction
from django.utils import timezone

from controlplane.advice import measuring
from controlplane.advice.models.advice_proposal import AdviceProposal, ProposalState
from controlplane.advice.proposals import (
    ADVISER,
    effective_mode,
    moved,
    on_evidence_of,
    promoted,
    settle,
    try_in_canary,
    try_in_shadow,
)
from controlplane.automation.pool_policy import pool_automation_of
from controlplane.automation.rounds import Round, RoundResult, run_rounds
from controlplane.fleet.models.pool import Pool
from controlplane.platform.conflict import ConflictError
from controlplane.platform.field_problems import InvalidFieldsError
from controlplane.platform.jobs.lease import Clock
from controlplane.platform.revisions import StaleRevisionError
from controlplane.policies.approvals import lacks_approval
from controlplane.policies.document.problems import InvalidPolicyError
from controlplane.policies.publish import StalePolicyError, roll_back
from controlplane.trials.canary import lifecycle as canaries
from controlplane.trials.canary.arm_intake import KEPT_S, ArmIntake, arm_intake
from controlplane.trials.canary.evidence import step_evidence
from controlplane.trials.canary.job import ACTOR as CANARY_ACTOR
from controlplane.trials.models.canary import Canary, CanaryState
from controlplane.trials.models.holdback import Holdback, SliceState
from controlplane.trials.models.shadow import Shadow, ShadowState
from controlplane.trials.shadow.reading import figures_of
from planning.adviser import autopilot
from planning.adviser.autopilot import AutopilotFacts, AutopilotStep, HoldbackCounts, contradiction, next_step
from planning.trials.arm_window import together
from routing.trials.arms import CONTROL, LIVE

JOB = "advice_autopilot"
EVERY = timedelta(seconds=5)
WATCHED = timedelta(days=1)
"""How long the holdback may contradict a promotion."""
_AGAINST = 0.05
"""Share of the expected TTFT by which a shadow's choices may be worse: estimates are no better than that."""
_CANNOT = (ConflictError, InvalidFieldsError, InvalidPolicyError, StalePolicyError, StaleRevisionError)
_CANARY_STATES = {
    CanaryState.RUNNING: autopilot.RUNNING,
    CanaryState.ABORTED: autopilot.ABORTED,
    CanaryState.ENDED: autopilot.ENDED,
}


@shared_task(name="controlplane.advice_autopilot", ignore_result=True)
def advice_autopilot() -> None:
    """Run every five seconds."""
    follow_proposals(arm_intake())


def follow_proposals(intake: ArmIntake, *, clock: Clock = timezone.now) -> int:
    """Take the next step of each pool with a proposal to follow. Return how many pools were evaluated."""
    followed = {proposal.pool_id: proposal for proposal in _followed(clock() - WATCHED)}
    pools = Pool.objects.filter(pk__in=followed).select_related("policy__live_version", "automation", "region")
    work = partial(_evaluate, intake=intake)
    return run_rounds(JOB, EVERY, work, pools=list(pools), clock=clock) if followed else 0


def _followed(since: object) -> list[AdviceProposal]:
    """Return the proposals to follow; of a pool the newest, last: an unsettled one replaces a promoted one."""
    proposals = AdviceProposal.objects.select_related("pool__policy", "base", "version", "canary", "shadow__draft")
    promotions = proposals.filter(state=ProposalState.PROMOTED, promoted_at__gte=since)
    return [*promotions.order_by("pk"), *proposals.filter(state__in=autopilot.UNSETTLED)]


def _evaluate(turn: Round, *, intake: ArmIntake) -> RoundResult | None:
    following = [item for item in _followed(turn.at - WATCHED) if item.pool_id == turn.pool.pk]
    result = RoundResult({})
    for proposal in following:
        counts = _holdback(proposal, intake, turn.now_s)
        step = next_step(_facts(turn, proposal, counts))
        result.effects.append(partial(_carry_out, turn, proposal, step, counts))
        result.outcome = {"action": step.action, "reason": step.reason}
        if proposal.state == ProposalState.PROMOTED and measuring.is_due(proposal, turn.at):
            result.effects.append(partial(measuring.measure, proposal, counts, turn.at))
    return result


def _facts(turn: Round, proposal: AdviceProposal, counts: HoldbackCounts) -> AutopilotFacts:
    live, pools = turn.pool.policy.live_version, list(turn.pool.policy.pools.select_related("automation"))
    number = live.number if live is not None else 0
    version, canary = proposal.version, proposal.canary or _canary_of_person(proposal)
    own = version is not None and live is not None and live.pk == version.pk
    state = _CANARY_STATES.get(CanaryState(canary.state), "") if canary is not None else ""
    return AutopilotFacts(
        mode=effective_mode(pools),
        state=proposal.state,
        live=autopilot.PROPOSED if own else autopilot.BASE if number == proposal.base.number else autopilot.OTHER,
        has_draft=version is not None,
        within_hours=all(autopilot.within_hours(pool.advice_hours, turn.at.hour) for pool in pools),
        frozen=any(pool_automation_of(pool).frozen for pool in pools),
        shadow=_shadow_state(proposal.shadow),
        shadow_against=_shadow_against(proposal.shadow),
        untestable=_untestable(proposal),
        canary=state,
        canary_reason=canary.reason if canary is not None else "",
        canary_by_person=canary is not None and canary.ended_by not in (CANARY_ACTOR.name, ADVISER.name),
        canary_waits=_canary_waits(canary, turn) if canary is not None and canary.running else "",
        lacks_approval=version is not None and lacks_approval(version),
        contradiction=_contradiction(turn, proposal, counts),
    )


def _canary_of_person(proposal: AdviceProposal) -> Canary | None:
    """Return the newest canary of the draft that a person started from its own page."""
    if proposal.version is None or proposal.state != ProposalState.OPEN:
        return None
    return Canary.objects.filter(version=proposal.version, pool=None, started_at__gte=proposal.created_at).first()


def _shadow_state(shadow: Shadow | None) -> str:
    if shadow is None:
        return ""
    states = {ShadowState.RUNNING: autopilot.RUNNING, ShadowState.FAILED: autopilot.FAILED}
    return states.get(ShadowState(shadow.state), autopilot.DONE)


def _shadow_against(shadow: Shadow | None) -> str:
    if shadow is None or shadow.state == ShadowState.RUNNING:
        return ""
    figures = figures_of(shadow)
    gain_s, expected_s = figures.mean_gain_s, figures.expected_s
    if gain_s is None or expected_s is None or gain_s >= -_AGAINST * expected_s:
        return ""
    return f"In its shadow, requests would have waited {-gain_s:.2f} s longer on average."


def _untestable(proposal: AdviceProposal) -> str:
    """Return why no canary can compare the draft: canaries compare placements."""
    version = proposal.version
    if version is None or version.routing_document["placement"] != proposal.base.routing_document["placement"]:
        return ""
    return "A canary compares placements, and this proposal keeps the placement. A person decides: try it in a what-if."


def _canary_waits(canary: Canary, turn: Round) -> str:
    """Return what the canary lacks before a promotion; empty: its last step held."""
    if canary.step + 1 < len(canary.steps):
        step = f"step {canary.step + 1} of {len(canary.steps)}"
        return f"Its canary is at {canary.share * 100:.3g} % of the sessions, {step}."
    missing = step_evidence(canary, turn.at).missing
    return f"Its canary is at its last step. {' '.join(missing)}" if missing else ""


def _holdback(proposal: AdviceProposal, intake: ArmIntake, now_s: float) -> HoldbackCounts:
    """Return the newest counts of the holdback: beside the former version or, once promoted, beside the proposal's."""
    pool, version = proposal.pool, proposal.version
    if version is None or not Holdback.objects.filter(pool=pool, share__gt=0).exists():
        return HoldbackCounts()
    number = version.number if proposal.state == ProposalState.PROMOTED else proposal.base.number
    slices = intake.slices([(pool.slug, CONTROL, number)], (pool.slug, LIVE, number), now_s - KEPT_S)
    rule, policy = together(item.base for _, item in slices), together(item.tried for _, item in slices)
    return HoldbackCounts(policy.judged, policy.late, rule.judged, rule.late)


def _contradiction(turn: Round, proposal: AdviceProposal, counts: HoldbackCounts) -> str:
    if proposal.state != ProposalState.PROMOTED or proposal.promoted_at is None:
        return ""
    lost = (SliceState.FALLBACK, SliceState.PROBING)
    if Holdback.objects.filter(pool=turn.pool, state__in=lost, since__gte=proposal.promoted_at).exists():
        return "The policy did worse than the holdback's simple rule, to which the pool fell back."
    before = HoldbackCounts(**proposal.holdback)
    return contradiction(before, counts, turn.pool.advice_on_time_gain / 100)


def _carry_out(turn: Round, proposal: AdviceProposal, step: AutopilotStep, counts: HoldbackCounts) -> None:
    """Take the step, or store why it cannot be taken; in the transaction of the round."""
    acts: dict[str, Callable[[], object]] = {
        autopilot.START_SHADOW: lambda: try_in_shadow(proposal, actor=ADVISER),
        autopilot.START_CANARY: lambda: try_in_canary(proposal, actor=ADVISER),
        autopilot.PUBLISH: lambda: _publish(turn, proposal, step, counts),
        autopilot.ROLL_BACK: lambda: _roll_back(proposal, step),
        autopilot.SETTLE: lambda: _settle(turn, proposal, step, counts),
        autopilot.WAIT: lambda: _wait(proposal, step.reason),
    }
    try:
        with transaction.atomic():
            acts[step.action]()
    except StaleRevisionError:
        # A person was faster; the next round follows.
        return
    except _CANNOT as error:
        _wait(proposal, f"Cannot continue: {error}")


def _wait(proposal: AdviceProposal, reason: str) -> None:
    # No revision: nothing that a person decides about has changed.
    AdviceProposal.objects.filter(pk=proposal.pk).exclude(waits=reason[:400]).update(waits=reason[:400])


def _publish(turn: Round, proposal: AdviceProposal, step: AutopilotStep, counts: HoldbackCounts) -> None:
    if proposal.canary is not None:
        canaries.promote(proposal.canary, actor=ADVISER, why=on_evidence_of(proposal, step.reason))
        promoted(proposal, turn.at, counts, actor=ADVISER, reason=step.reason)


def _roll_back(proposal: AdviceProposal, step: AutopilotStep) -> None:
    if proposal.version is not None:
        policy, why = proposal.pool.policy, on_evidence_of(proposal, step.reason)
        roll_back(policy, proposal.base.number, instead_of=proposal.version.number, actor=ADVISER, why=why)
    reason = f"{step.reason} v{proposal.base.number} was published again."
    moved(proposal, ProposalState.CONTRADICTED, "advice.roll_back", actor=ADVISER, reason=reason, waits="")


def _settle(turn: Round, proposal: AdviceProposal, step: AutopilotStep, counts: HoldbackCounts) -> None:
    state = ProposalState(step.state)
    if state == ProposalState.PROMOTED:
        at = proposal.version.published_at if proposal.version is not None else None
        promoted(proposal, at or turn.at, counts, actor=ADVISER, reason=step.reason)
    elif state == ProposalState.IN_CANARY:
        canary = _canary_of_person(proposal)
        moved(proposal, state, "advice.canary", actor=ADVISER, reason=step.reason, canary=canary, waits="")
    elif state == ProposalState.OPEN:
        moved(proposal, state, "advice.reopen", actor=ADVISER, reason=step.reason, canary=None, waits="")
    else:
        settle(proposal, state, actor=ADVISER, reason=step.reason)
