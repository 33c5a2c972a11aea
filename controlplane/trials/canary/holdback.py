"""Changes the state of a pool's holdback. Each change of the serving side is audited and published."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any

import msgspec
from celery import shared_task
from django.db import transaction
from django.db.models import F
from django.utils import timezone

from controlplane.automation.pool_policy import pool_automation_of
from controlplane.automation.rounds import Round, RoundResult, moved_back, run_rounds
from controlplane.fleet.models.pool import Pool
from controlplane.fleet.visibility import visible_pools
from controlplane.platform import audit
from controlplane.platform.actor import Actor, program
from controlplane.platform.jobs.lease import Clock
from controlplane.platform.snapshot_change import record_change
from controlplane.trials.canary.arm_intake import ArmIntake, arm_intake
from controlplane.trials.canary.end import end_running
from controlplane.trials.canary.evaluation import evaluation_of, plain
from controlplane.trials.canary.pool_arms import slice_document
from controlplane.trials.models.holdback import Holdback, HoldbackDay, SliceState
from planning.trials.canary import recent_of
from planning.trials.comparison import ArmSlice
from planning.trials.holdback import HoldbackFacts, HoldbackMemory, HoldbackPlan, plan_holdback
from routing.trials.arms import CONTROL, LIVE
from routing.values.prepared_struct import prepared

COUNT_EVERY_S = 30.0
COMPLETE_AFTER_S = 10.0
"""Age at which a slice has the reports of all gateways."""
_VERBS = {
    SliceState.OFF: "holdback.off",
    SliceState.SLICE: "holdback.keep",
    SliceState.FALLBACK: "holdback.fall_back",
    SliceState.PROBING: "holdback.try_again",
}


def holdback_of(pool: Pool, at: datetime) -> Holdback:
    """Return the pool's holdback, or a new, unsaved one."""
    stored = Holdback.objects.filter(pool=pool).first()
    return stored or Holdback(pool=pool, since=at, trial_id=secrets.token_hex(8))


def visible_slices(actor: Actor) -> list[Holdback]:
    """Return the holdbacks of the pools that the actor may see, except those that are off."""
    slices = Holdback.objects.exclude(state=SliceState.OFF).filter(pool__in=visible_pools(actor))
    return list(slices.select_related("pool__policy__live_version").order_by("pool__slug"))


def memory_of(stored: Holdback) -> HoldbackMemory:
    """Return the memory of the last evaluation."""
    return msgspec.convert(stored.memory, prepared(HoldbackMemory))


def turn(
    stored: Holdback,
    plan: HoldbackPlan,
    memory: HoldbackMemory,
    evaluation: dict[str, Any],
    at: datetime,
    *,
    actor: Actor,
) -> None:
    """Store the result of an evaluation. If the share or the serving side changes, audit and publish the change."""
    reason = "; ".join(item.text for item in plan.reasons)[:400]
    before = {"state": stored.state, "share": stored.share}
    after = {"state": memory.state, "share": plan.share}
    with transaction.atomic():
        stored.memory, stored.evaluation, stored.share = msgspec.to_builtins(memory), evaluation, plan.share
        if before != after:
            stored.state, stored.since, stored.reason = SliceState(memory.state), at, reason
        stored.save()
        if before == after:
            return
        pool = stored.pool
        verb = _VERBS[SliceState(memory.state)]
        audit.record_for(actor, verb, pool, before=before, after=after, why=reason)
        if memory.state == SliceState.FALLBACK.value:
            # The policy itself is in doubt, so its canary has no baseline.
            text = f"Pool {pool.slug} fell back to its simple rule"
            end_running(pool.policy, text, actor=actor, pool=pool.slug)
        record_change()


def count_days(stored: Holdback, placement: str, slices: Sequence[tuple[float, ArmSlice]], now_s: float) -> None:
    """Add what both arms answered since the last count to their days. The caller saves `stored`, in one transaction."""
    until_s = now_s - COMPLETE_AFTER_S
    if 0 <= until_s - stored.counted_to_s < COUNT_EVERY_S:
        return
    sums: dict[date, Counter[str]] = {}
    for at_s, slice_ in slices:
        if stored.counted_to_s < at_s <= until_s:
            base, tried = slice_.base, slice_.tried
            sums.setdefault(datetime.fromtimestamp(at_s, UTC).date(), Counter()).update(
                control=base.judged, control_late=base.late, live=tried.judged, live_late=tried.late
            )
    stored.counted_to_s = until_s
    for day, added in sums.items():
        row, _ = HoldbackDay.objects.get_or_create(day=day, pool=stored.pool.slug, placement=placement)
        HoldbackDay.objects.filter(pk=row.pk).update(**{name: F(name) + number for name, number in added.items()})


JOB = "holdback"
EVERY = timedelta(seconds=1.5)
ACTOR = program("holdback")


@shared_task(name="controlplane.holdback", ignore_result=True)
def holdbacks() -> None:
    """Run every other second."""
    evaluate_slices(arm_intake())


def evaluate_slices(intake: ArmIntake, *, clock: Clock = timezone.now) -> int:
    """Evaluate each pool that has a holdback or whose policy requests one. Return how many were evaluated."""
    rows = Pool.objects.select_related("policy__live_version", "automation", "region", "holdback")
    pools = [pool for pool in rows if _concerned(pool)]
    return run_rounds(JOB, EVERY, partial(_evaluate, intake=intake), pools=pools, clock=clock) if pools else 0


def _concerned(pool: Pool) -> bool:
    stored = getattr(pool, "holdback", None)
    if stored is not None and stored.state != SliceState.OFF:
        return True
    return slice_document(pool.policy.live_version).share > 0


def _evaluate(turn_: Round, *, intake: ArmIntake) -> RoundResult:
    pool, live = turn_.pool, turn_.pool.policy.live_version
    settings = slice_document(live)
    stored = holdback_of(pool, turn_.at)
    before = msgspec.to_builtins(memory_of(stored))
    # The round moves only the memory of its own run with the clock; this one is in the holdback's row.
    memory = msgspec.convert(moved_back(before, turn_.lease.went_back, turn_.at), prepared(HoldbackMemory))
    number = live.number if live is not None else 0
    # The policy is the candidate here: it must not do worse than the rule.
    slices = intake.slices([(pool.slug, CONTROL, number)], (pool.slug, LIVE, number), memory.since_s)
    recent = recent_of(slices, turn_.now_s - settings.guardrails.window_s)
    facts = HoldbackFacts(turn_.now_s, tuple(slice_ for _, slice_ in slices), recent, pool_automation_of(pool).frozen)
    plan, after = plan_holdback(facts, memory, settings)
    evaluation = evaluation_of(turn_.now_s, after.state, plan.reasons, plan.comparison, slices)
    result = RoundResult({}, outcome={"state": after.state, "reason": plan.reasons[0].text if plan.reasons else ""})
    if memory.state == after.state == "slice":
        result.effects.append(partial(count_days, stored, settings.placement, slices, turn_.now_s))
    result.effects.append(partial(turn, stored, plan, after, plain(evaluation), turn_.at, actor=ACTOR))
    return result
