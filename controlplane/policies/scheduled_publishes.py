"""Schedules a version to go live at a chosen time. A job publishes it at that time.

The job makes the same checks as a manual publish: it fails if a newer version is live, an approval is missing, the
document is no longer valid, or the scheduling person has lost the role. The reason is stored.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from celery import shared_task
from django.conf import settings
from django.contrib.auth.models import User
from django.db import models, transaction
from django.utils import timezone

from controlplane.platform import audit
from controlplane.platform.actor import PROGRAM, Actor, machine, person, program
from controlplane.platform.conflict import ConflictError
from controlplane.platform.field_problems import problem
from controlplane.platform.models.api_key import ApiKey
from controlplane.platform.outage.bus_revocations import bus_revocations
from controlplane.platform.revisions import StaleRevisionError
from controlplane.platform.roles import NotAllowedError
from controlplane.policies.approvals import NotApprovedError
from controlplane.policies.document.problems import InvalidPolicyError, validated
from controlplane.policies.models.policy import Policy
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.policies.models.scheduled_publish import ScheduledPublish, ScheduleState
from controlplane.policies.publish import StalePolicyError, publish_version
from controlplane.policies.roles import only_pool, require_all_pools
from controlplane.policies.schedule_end import audit_fields, end

FARTHEST = timedelta(days=30)
"""Maximum lead time. Longer schedules would be forgotten."""

_REJECTIONS = (StalePolicyError, NotApprovedError, InvalidPolicyError, NotAllowedError)


class ScheduleError(ConflictError):
    """The version cannot be scheduled, or its scheduled publish cannot be canceled, in its current state."""


def schedule_publish(
    version: PolicyVersion, at: datetime, *, instead_of: int | None, actor: Actor, why: str = ""
) -> ScheduledPublish:
    """Schedule the version to replace the current live version at `at`.

    Raises NotAllowedError, InvalidPolicyError, InvalidFieldsError (a time in the past or too far ahead),
    StalePolicyError, and ScheduleError if the policy already has a scheduled publish.
    """
    policy = version.policy
    require_all_pools(actor, policy)
    validated(version.document)
    now = timezone.now()
    if not now < at <= now + FARTHEST:
        raise problem("at", f"Choose a future time within {FARTHEST.days} days; this is {_utc(at)}.")
    with transaction.atomic():
        stored = Policy.objects.select_for_update(of=("self",)).select_related("live_version").get(pk=policy.pk)
        live = stored.live_version
        if (live.number if live else None) != instead_of:
            raise StalePolicyError(stored, live)
        if live is not None and live.pk == version.pk:
            raise ScheduleError(f"v{version.number} is already live; there is nothing to schedule.")
        waiting = waiting_schedule(policy)
        if waiting is not None:
            number, when = waiting.version.number, _utc(waiting.at)
            raise ScheduleError(f"v{number} is already scheduled for {when}; cancel that first.")
        schedule = ScheduledPublish.objects.create(
            policy=policy, version=version, at=at, instead_of=instead_of, by=actor.user, by_key=actor.key_id,
            by_name=actor.name, why=why[:200],
        )  # fmt: skip
        audit.record_for(
            actor, "policy.schedule", policy, after=audit_fields(schedule), why=why, pool=only_pool(policy)
        )
    return schedule


def cancel_schedule(
    schedule: ScheduledPublish, *, actor: Actor, expected: int | None = None, why: str = ""
) -> ScheduledPublish:
    """Cancel the scheduled publish and return it. Raises NotAllowedError, StaleRevisionError, ScheduleError."""
    require_all_pools(actor, schedule.policy)
    with transaction.atomic():
        stored = ScheduledPublish.objects.select_for_update(of=("self",)).get(pk=schedule.pk)
        if expected is not None and stored.revision != expected:
            raise StaleRevisionError(stored)
        reason = f"Canceled by {actor.name}."
        if not end(schedule, ScheduleState.CANCELLED, actor=actor, problem=reason, why=why):
            raise ScheduleError(f"{stored} is already {stored.state}; there is nothing to cancel.")
    return schedule


def waiting_schedule(policy: Policy) -> ScheduledPublish | None:
    """Return the policy's waiting publish; None without one."""
    return _schedules().filter(policy=policy, state=ScheduleState.WAITING).first()


def newest_schedule(policy: Policy) -> ScheduledPublish | None:
    """Return the policy's newest scheduled publish, even if it has ended; None if there was none."""
    return _schedules().filter(policy=policy).order_by("-pk").first()


def newest_schedules(versions: models.QuerySet[PolicyVersion] | list[PolicyVersion]) -> dict[int, ScheduledPublish]:
    """Return the newest scheduled publish of each version with one, by version id."""
    return {schedule.version_id: schedule for schedule in _schedules().filter(version__in=versions).order_by("pk")}


def due_schedules(now: datetime) -> list[int]:
    """Return the ids of the due publishes, earliest first."""
    due = ScheduledPublish.objects.filter(state=ScheduleState.WAITING, at__lte=now)
    return list(due.order_by("at", "pk").values_list("pk", flat=True)[:100])


def carry_out(pk: int, now: datetime, *, grace: timedelta) -> str | None:
    """Publish a due version, or store why it cannot be published. Return the new state; None if another process did it.

    The publish and the end of its schedule are one transaction. Therefore a crash in between changes nothing, and
    two processes cannot both publish. A publish later than `grace` fails.
    """
    with transaction.atomic():
        schedule = _schedules().select_for_update(of=("self",)).filter(pk=pk).first()
        if schedule is None or schedule.state != ScheduleState.WAITING:
            return None
        # A change that is meant for the night must not happen in working hours.
        if now - schedule.at > grace:
            return _failed(schedule, _missed(schedule, now, grace))
        try:
            with transaction.atomic():
                # In a savepoint: a rejected publish is undone, and the outer transaction stores why.
                actor = _actor_of(schedule)
                end(schedule, ScheduleState.PUBLISHED, actor=actor)
                why = schedule.why or schedule.version.message
                publish_version(schedule.version, instead_of=schedule.instead_of, actor=actor, why=why)
        except _REJECTIONS as error:
            # Read again: the savepoint was undone in the database, and not in the object.
            return _failed(_schedules().get(pk=pk), str(error))
    return ScheduleState.PUBLISHED.value


def _failed(schedule: ScheduledPublish, reason: str) -> str | None:
    ended = end(schedule, ScheduleState.FAILED, actor=program("scheduled publish"), problem=reason)
    return ScheduleState.FAILED.value if ended else None


def _missed(schedule: ScheduledPublish, now: datetime, grace: timedelta) -> str:
    late = round((now - schedule.at).total_seconds() / 60)
    return (
        f"Headway was not running at {_utc(schedule.at)} and started {late} min later, after the grace period of "
        f"{grace.total_seconds() / 60:.0f} min. Schedule it again or publish it now."
    )


def _actor_of(schedule: ScheduledPublish) -> Actor:
    """Return the author of the schedule, with their current role. Raises NotAllowedError if the author was deleted."""
    if schedule.by_key:
        key = ApiKey.objects.filter(key_id=schedule.by_key, revoked_at=None).first()
        revoked = key is None or bus_revocations().revokes(key.sha256)
        if key is None or revoked or (key.expires_at is not None and key.expires_at <= timezone.now()):
            raise NotAllowedError(f"The API key {schedule.by_name} that scheduled it has been revoked or has expired.")
        if "manage" not in key.scopes:
            raise NotAllowedError(f"The API key {schedule.by_name} that scheduled it has lost the scope manage.")
        return machine(key)
    if schedule.by is not None:
        return person(User.objects.get(pk=schedule.by_id), via=PROGRAM)
    return program(schedule.by_name)


def _schedules() -> models.QuerySet[ScheduledPublish]:
    return ScheduledPublish.objects.select_related("policy__live_version", "version__policy", "version__author", "by")


def _utc(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


logger = logging.getLogger(__name__)


@shared_task(name="controlplane.scheduled_publish", ignore_result=True)
def scheduled_publish() -> None:
    """Run every two seconds.

    It needs no lease, because each publish ends once, by a conditional update of its row.
    """
    grace = timedelta(minutes=settings.PUBLISH_GRACE_MIN)
    for pk in due_schedules(timezone.now()):
        try:
            carry_out(pk, timezone.now(), grace=grace)
        except Exception:
            # The edge of the job: one that fails is tried again, and the others proceed.
            logger.exception("a scheduled release failed")
