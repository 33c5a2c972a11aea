"""Evaluates the holdback of every pool that has one: is the policy better than the simple rule?"""

from __future__ import annotations

from datetime import timedelta
from functools import partial

import msgspec
from celery import shared_task
from django.utils import timezone

from controlplane.automation.pool_policy import steering_of
from controlplane.automation.rounds import Round, RoundResult, run_rounds
from controlplane.fleet.models.pool import Pool
from controlplane.platform.actor import program
from controlplane.platform.jobs.clock_set_back import moved_back
from controlplane.platform.jobs.lease import Clock
from controlplane.trials.canary.arm_intake import ArmIntake, arm_intake
from controlplane.trials.canary.evaluation import look_of, plain
from controlplane.trials.canary.holdback import control_slice, memory_of, turn
from controlplane.trials.canary.pool_arms import slice_document
from controlplane.trials.models.control_slice import SliceState
from planning.trials.canary import recent_of
from planning.trials.holdback import HoldbackFacts, HoldbackMemory, plan_holdback
from routing.trials.arms import CONTROL, LIVE
from routing.values.prepared_struct import prepared

JOB = "control_slice"
EVERY = timedelta(seconds=1.5)
ACTOR = program("control slice")


@shared_task(name="controlplane.control_slice", ignore_result=True)
def control_slices() -> None:
    """Run every other second."""
    look_at_slices(arm_intake())


def look_at_slices(intake: ArmIntake, *, clock: Clock = timezone.now) -> int:
    """Look at each pool whose policy asks for a slice or that has one, and return how many were."""
    found = Pool.objects.select_related("policy__live_version", "steering", "region", "control_slice")
    pools = [pool for pool in found if _concerned(pool)]
    return run_rounds(JOB, EVERY, partial(_look, intake=intake), pools=pools, clock=clock) if pools else 0


def _concerned(pool: Pool) -> bool:
    stored = getattr(pool, "control_slice", None)
    if stored is not None and stored.state != SliceState.OFF:
        return True
    return slice_document(pool.policy.live_version).share > 0


def _look(turn_: Round, *, intake: ArmIntake) -> RoundResult:
    pool, live = turn_.pool, turn_.pool.policy.live_version
    settings = slice_document(live)
    stored = control_slice(pool, turn_.at)
    before = msgspec.to_builtins(memory_of(stored))
    memory = msgspec.convert(moved_back(before, turn_.lease.went_back, turn_.at), prepared(HoldbackMemory))
    number = live.number if live is not None else 0
    # The policy is the tried arm here: the rule is what it must not lose to.
    slices = intake.slices([(pool.slug, CONTROL, number)], (pool.slug, LIVE, number), memory.since_s)
    recent = recent_of(slices, turn_.now_s - settings.guards.window_s)
    facts = HoldbackFacts(turn_.now_s, tuple(each for _, each in slices), recent, steering_of(pool).frozen)
    plan, after = plan_holdback(facts, memory, settings)
    look = look_of(turn_.now_s, after.state, plan.reasons, plan.comparison, slices)
    result = RoundResult({}, outcome={"state": after.state, "reason": plan.reasons[0].text if plan.reasons else ""})
    result.effects.append(partial(turn, stored, plan, after, plain(look), turn_.at, actor=ACTOR))
    return result
