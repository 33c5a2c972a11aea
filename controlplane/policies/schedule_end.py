"""Ends a scheduled publish exactly once and records the reason in the audit."""

from __future__ import annotations

from django.db import models
from django.utils import timezone

from controlplane.platform import audit
from controlplane.platform.actor import Actor
from controlplane.policies.models.policy import Policy
from controlplane.policies.models.scheduled_publish import ScheduledPublish, ScheduleState
from controlplane.policies.roles import only_pool

_VERBS = {
    ScheduleState.PUBLISHED: "policy.schedule_done",
    ScheduleState.FAILED: "policy.schedule_fail",
    ScheduleState.CANCELLED: "policy.schedule_cancel",
}


def end(schedule: ScheduledPublish, state: ScheduleState, *, actor: Actor, problem: str = "", why: str = "") -> bool:
    """End a waiting publish. Return False if it has already ended. Call it in the transaction of its cause."""
    waiting = ScheduledPublish.objects.filter(pk=schedule.pk, state=ScheduleState.WAITING)
    # The job, a person, and a publish by hand may end it at the same moment; one of them does.
    if not waiting.update(
        state=state, problem=problem[:500], ended_at=timezone.now(), revision=models.F("revision") + 1
    ):
        return False
    before = audit_fields(schedule)
    schedule.refresh_from_db()
    pool = only_pool(schedule.policy)
    audit.record_for(
        actor, _VERBS[state], schedule.policy, before=before, after=audit_fields(schedule), why=why, pool=pool
    )
    return True


def end_overtaken(policy: Policy, number: int, *, actor: Actor) -> None:
    """Cancel the policy's waiting publish, because version `number` went live."""
    for schedule in ScheduledPublish.objects.filter(policy=policy, state=ScheduleState.WAITING).select_related(
        "version", "policy"
    ):
        same = schedule.version.number == number
        reason = f"v{number} went live before that time" + (" by hand." if same else "; review it and schedule again.")
        end(schedule, ScheduleState.CANCELLED, actor=actor, problem=reason)


def audit_fields(schedule: ScheduledPublish) -> dict[str, object]:
    """Return the scheduled publish in the form recorded in the audit."""
    return {
        "version": schedule.version.number,
        "at": schedule.at.isoformat(),
        "instead_of": schedule.instead_of,
        "by": schedule.by_name,
        "state": schedule.state,
        "problem": schedule.problem,
    }
