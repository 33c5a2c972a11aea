"""Carries out an automation's advice once, on a person's request."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from controlplane.automation.models.engine_action import EngineAction
from controlplane.automation.plan_actions import request_role_changes, request_scaling
from controlplane.automation.pool_policy import pool_automation_of
from controlplane.fleet.models.pool import Pool
from controlplane.platform import audit
from controlplane.platform.actor import Actor
from controlplane.platform.conflict import ConflictError
from controlplane.platform.models.job_run import JobRun, JobState
from controlplane.platform.role import Role
from controlplane.platform.roles import require

SCALING, RATIO = "scaling", "prefill_decode"
ADVISING = (SCALING, RATIO)
"""Automations whose plans become actions."""
FRESH = timedelta(seconds=30)
"""Maximum age of a plan to follow; rounds are five seconds apart."""


class AdviceError(ConflictError):
    """The advice cannot be followed now. The message explains why."""


def advice_key(job: str, plan: Mapping[str, Any]) -> str:
    """Return the plan's intent as a short text; empty if it changes nothing."""
    if job == SCALING:
        return ",".join([f"+{role}" for role in plan.get("add", ())] + [f"-{item}" for item in plan.get("drain", ())])
    if job == RATIO:
        return ",".join(f"{change['engine_id']}>{change['after']}" for change in plan.get("role_changes", ()))
    return ""


def follow_advice(
    pool: Pool, job: str, advice: str, *, actor: Actor, at: datetime | None = None, why: str = ""
) -> list[EngineAction]:
    """Start the actions that the automation's last plan advises, if the advice is unchanged at `at` (None: now).

    Returns the actions. Raises NotAllowedError, and AdviceError if the pool is frozen, the automation acts by itself,
    or the advice is old, has changed, or was already followed.
    """
    require(actor, Role.OPERATOR, pool)
    at = at or timezone.now()
    if pool_automation_of(pool).frozen:
        raise AdviceError(f"{pool.name} is frozen. Unfreeze it first.")
    with transaction.atomic():
        # Of two people who follow the same advice, the second waits here and then sees the actions of the first.
        runs = JobRun.objects.select_for_update().filter(job=job, shard=pool.pk, state=JobState.ACTIVE)
        run = runs.first() if job in ADVISING else None
        plan = _current(pool, run, job, advice, at)
        text = plan["reasons"][0]["text"] if plan.get("reasons") else ""
        said = f"{actor.name} followed the advice: {text}"
        if job == SCALING:
            actions = request_scaling(pool, plan["add"], plan["drain"], actor=actor, why=said, at=at)
        else:
            role_changes = [(change["engine_id"], change["after"]) for change in plan["role_changes"]]
            actions = request_role_changes(pool, role_changes, actor=actor, why=said, at=at)
        after = {"automation": job, "advice": advice, "reason": text, "actions": [action.key for action in actions]}
        audit.record_for(actor, "pool.follow_advice", pool, after=after, why=why)
    return actions


def _current(pool: Pool, run: JobRun | None, job: str, key: str, at: datetime) -> Mapping[str, Any]:
    plan = run.plan if run is not None else {}
    outcome = run.outcome if run is not None else {}
    made_s = plan.get("at_s")
    if not isinstance(made_s, int | float) or at.timestamp() - made_s > FRESH.total_seconds():
        raise AdviceError("This automation has no recent plan; check the job under Jobs.")
    if outcome.get("mode") != "advise":
        raise AdviceError(f"This automation is not advising now; it is set to {outcome.get('mode', 'off')}.")
    if not key or advice_key(job, plan) != key:
        raise AdviceError("The advice has changed. Review it, then decide.")
    if EngineAction.objects.filter(pool=pool, requested_at__gte=datetime.fromtimestamp(made_s, at.tzinfo)).exists():
        raise AdviceError("An action was started since this advice. New advice comes within seconds.")
    return plan
