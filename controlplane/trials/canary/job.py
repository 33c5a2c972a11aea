"""Evaluates every running canary: observes both arms, plans, and then steps, promotes, or aborts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
from celery import shared_task
from django.utils import timezone

from controlplane.automation.pool_policy import pool_automation_of
from controlplane.automation.rounds import LeaseLostError, RoundResult, store
from controlplane.fleet.models.pool import Pool
from controlplane.platform.actor import program
from controlplane.platform.jobs.lease import Clock, acquire, this_owner
from controlplane.platform.revisions import StaleRevisionError
from controlplane.policies.approvals import NotApprovedError, lacks_approval
from controlplane.policies.publish import StalePolicyError
from controlplane.trials.canary import lifecycle as canaries
from controlplane.trials.canary.arm_intake import SLICE_S, ArmIntake, Key, arm_intake
from controlplane.trials.canary.end import CanaryOverError, abort, end, locked_running
from controlplane.trials.canary.evaluation import evaluation_of, plain
from controlplane.trials.canary.evidence import Evidence
from controlplane.trials.canary.service_share import others_of, service_problem, side_names
from controlplane.trials.models.canary import Canary, CanaryState
from planning.documents.guardrail_document import GuardrailDocument
from planning.trials.canary import ABORT, PROMOTE, STEP, CanaryFacts, CanaryPlan, plan_canary, recent_of
from planning.trials.comparison import ArmSlice
from routing.trials.arms import CANARY, LIVE
from routing.values.prepared_struct import prepared

JOB = "canary"
EVERY = timedelta(seconds=2)
LEASE = timedelta(seconds=8)
ACTOR = program("canary")

logger = logging.getLogger(__name__)


@shared_task(name="controlplane.canary", ignore_result=True)
def canary() -> None:
    """Run every other second. The first run subscribes."""
    evaluate_canaries(arm_intake())


def evaluate_canaries(intake: ArmIntake, *, clock: Clock = timezone.now) -> int:
    """Evaluate each running canary that no other process is evaluating. Return how many were evaluated."""
    evaluated = 0
    running = Canary.objects.filter(state=CanaryState.RUNNING)
    for canary in running.select_related("policy", "version", "against", "pool__region"):
        # By policy: it has one running canary at most.
        lease = acquire(JOB, this_owner(), LEASE, shard=canary.policy_id, clock=clock)
        if lease is None:
            continue
        if lease.went_back:
            # The step's elapsed time is kept: its start moves with the clock.
            canary.step_at -= lease.went_back
            Canary.objects.filter(pk=canary.pk, revision=canary.revision).update(step_at=canary.step_at)
        result = _evaluate(canary, intake, clock().timestamp())
        try:
            # Due before the next wake-up, which would otherwise come a moment too early and be lost.
            store(lease, result, clock() + EVERY - timedelta(milliseconds=500))
            evaluated += 1
        except (LeaseLostError, StaleRevisionError, CanaryOverError, StalePolicyError, NotApprovedError) as error:
            logger.info("a canary evaluation came too late", extra={"canary": canary.key, "reason": str(error)})
    return evaluated


def _evaluate(canary: Canary, intake: ArmIntake, now_s: float) -> RoundResult:
    """Return the result of one evaluation. Slices that began before the current step are ignored."""
    guardrails = msgspec.convert(canary.guardrails, prepared(GuardrailDocument))
    since_s = canary.step_at.timestamp()
    pools = list(canary.policy.pools.select_related("automation"))
    by_side = {name: intake.slices(base, tried, since_s) for name, (base, tried) in _sides(canary, pools).items()}
    candidate, baseline = side_names(canary)
    plan = plan_canary(
        CanaryFacts(
            steps=tuple(canary.steps),
            step=canary.step,
            step_for_s=now_s - since_s,
            min_dwell_s=canary.min_dwell_s,
            # Without a required approval it waits at its last step, as one promoted by hand does.
            advance="steps" if _must_wait(canary) else canary.advance,
            guardrails=guardrails,
            whole={pool: recent_of(slices, since_s) for pool, slices in by_side.items()},
            recent={pool: recent_of(slices, now_s - guardrails.window_s) for pool, slices in by_side.items()},
            frozen=any(pool_automation_of(pool).frozen for pool in pools),
            tried=candidate,
            base=baseline,
        )
    )
    slices = sorted((item for pool in by_side.values() for item in pool), key=lambda item_: item_[0])
    result = RoundResult(
        {},
        inputs={"canary": canary.key, "requests": plan.comparison.tried_requests, "slice_s": SLICE_S},
        outcome={"action": plan.action, "reason": "; ".join(reason.text for reason in plan.reasons)},
    )
    result.effects.append(partial(_keep, canary, plan, slices, now_s))
    return result


def _sides(canary: Canary, pools: Sequence[Pool]) -> dict[str, tuple[list[Key], Key]]:
    """Return the keys of baselines and candidate to compare: within each pool, or one pool with the others."""
    live = canary.against.number
    if canary.pool is not None:
        others = [(other.slug, LIVE, live) for other in others_of(canary.pool)]
        return {canary.pool.slug: (others, (canary.pool.slug, CANARY, live))}
    return {pool.slug: ([(pool.slug, LIVE, live)], (pool.slug, CANARY, canary.version.number)) for pool in pools}


def _must_wait(canary: Canary) -> bool:
    """Return whether the version needs an approval before it can be promoted."""
    return canary.advance == "promote" and canary.pool is None and lacks_approval(canary.version)


def _keep(canary: Canary, plan: CanaryPlan, slices: list[tuple[float, ArmSlice]], now_s: float) -> None:
    """Store the evaluation, and carry out its action, in the transaction of the round."""
    if canary.pool is not None and (problem := service_problem(canary.pool)):
        end(locked_running(canary, canary.revision), CanaryState.ENDED, "canary.end", actor=ACTOR, reason=problem)
        return
    evaluation = evaluation_of(now_s, plan.action, plan.reasons, plan.comparison, slices)
    # A person may have stepped or ended it since it was read.
    Canary.objects.filter(pk=canary.pk, revision=canary.revision).update(evaluation=plain(evaluation))
    why = "; ".join(reason.text for reason in plan.reasons)
    verbs: dict[str, Callable[..., Any]] = {
        ABORT: abort,
        STEP: partial(canaries.take_step, evidence=Evidence.JUDGED),
        PROMOTE: partial(canaries.promote, evidence=Evidence.JUDGED),
    }
    verb = verbs.get(plan.action)
    if verb is not None:
        verb(canary, actor=ACTOR, expected=canary.revision, why=why)
