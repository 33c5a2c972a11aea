"""Evaluates every running canary: observes both arms, plans, then steps, promotes, or aborts."""

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
from controlplane.trials.canary.evaluation import look_of, plain
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
    """Run every other second; the first run begins to listen."""
    look_at_all(arm_intake())


def look_at_all(intake: ArmIntake, *, clock: Clock = timezone.now) -> int:
    """Evaluate each running canary that no other process evaluates now, and return how many were."""
    looked = 0
    running = Canary.objects.filter(state=CanaryState.RUNNING)
    for found in running.select_related("policy", "version", "against", "pool__region"):
        lease = acquire(JOB, this_owner(), LEASE, shard=found.policy_id, clock=clock)
        if lease is None:
            continue
        if lease.went_back:
            # The step's elapsed time is kept: its start moves with the clock.
            found.step_at -= lease.went_back
            Canary.objects.filter(pk=found.pk, revision=found.revision).update(step_at=found.step_at)
        result = _look(found, intake, clock().timestamp())
        try:
            store(lease, result, clock() + EVERY - timedelta(milliseconds=500))
            looked += 1
        except (LeaseLostError, StaleRevisionError, CanaryOverError, StalePolicyError, NotApprovedError) as error:
            logger.info("a canary evaluation came too late", extra={"canary": found.key, "reason": str(error)})
    return looked


def _look(found: Canary, intake: ArmIntake, now_s: float) -> RoundResult:
    """Return the result of one evaluation; a slice that began before the step did belongs to the one before."""
    guardrails = msgspec.convert(found.guardrails, prepared(GuardrailDocument))
    since_s = found.step_at.timestamp()
    pools = list(found.policy.pools.select_related("automation"))
    told = {name: intake.slices(base, tried, since_s) for name, (base, tried) in _sides(found, pools).items()}
    candidate, baseline = side_names(found)
    plan = plan_canary(
        CanaryFacts(
            steps=tuple(found.steps),
            step=found.step,
            step_for_s=now_s - since_s,
            min_dwell_s=found.min_dwell_s,
            # Without the approval that its policy asks for it waits at its last step, as one promoted by hand does.
            advance="steps" if _must_wait(found) else found.advance,
            guardrails=guardrails,
            whole={pool: recent_of(slices, since_s) for pool, slices in told.items()},
            recent={pool: recent_of(slices, now_s - guardrails.window_s) for pool, slices in told.items()},
            frozen=any(pool_automation_of(pool).frozen for pool in pools),
            tried=candidate,
            base=baseline,
        )
    )
    slices = sorted((item for pool in told.values() for item in pool), key=lambda each_: each_[0])
    result = RoundResult(
        {},
        inputs={"canary": found.key, "requests": plan.comparison.tried_requests, "slice_s": SLICE_S},
        outcome={"action": plan.action, "reason": "; ".join(reason.text for reason in plan.reasons)},
    )
    result.effects.append(partial(_keep, found, plan, slices, now_s))
    return result


def _sides(found: Canary, pools: Sequence[Pool]) -> dict[str, tuple[list[Key], Key]]:
    """Return whose results are compared, baseline and candidate: within each pool, or one pool with the others."""
    live = found.against.number
    if found.pool is not None:
        others = [(other.slug, LIVE, live) for other in others_of(found.pool)]
        return {found.pool.slug: (others, (found.pool.slug, CANARY, live))}
    return {pool.slug: ([(pool.slug, LIVE, live)], (pool.slug, CANARY, found.version.number)) for pool in pools}


def _must_wait(found: Canary) -> bool:
    """Return whether its version needs an approval before it is promoted."""
    return found.advance == "promote" and found.pool is None and lacks_approval(found.version)


def _keep(found: Canary, plan: CanaryPlan, slices: list[tuple[float, ArmSlice]], now_s: float) -> None:
    """Store the evaluation, and carry out its action, in the transaction of the round."""
    if found.pool is not None and (problem := service_problem(found.pool)):
        end(locked_running(found, found.revision), CanaryState.ENDED, "canary.end", actor=ACTOR, reason=problem)
        return
    look = look_of(now_s, plan.action, plan.reasons, plan.comparison, slices)
    Canary.objects.filter(pk=found.pk, revision=found.revision).update(look=plain(look))
    why = "; ".join(reason.text for reason in plan.reasons)
    verbs: dict[str, Callable[..., Any]] = {
        ABORT: abort,
        STEP: partial(canaries.take_step, evidence=Evidence.JUDGED),
        PROMOTE: partial(canaries.promote, evidence=Evidence.JUDGED),
    }
    verb = verbs.get(plan.action)
    if verb is not None:
        verb(found, actor=ACTOR, expected=found.revision, why=why)
