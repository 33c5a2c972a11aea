"""A version goes live once at its scheduled time, or states why it cannot."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from controlplane.access.api_keys import create_api_key
from controlplane.access.models.role_grant import RoleGrant
from controlplane.fleet.models.pool import Pool
from controlplane.platform.actor import CONSOLE, Actor, machine, person, program
from controlplane.platform.field_problems import InvalidFieldsError
from controlplane.platform.models.api_key import ApiKey
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.models.tenant import Tenant
from controlplane.platform.outage.bus_revocations import bus_revocations, revocation_of
from controlplane.platform.revisions import StaleRevisionError
from controlplane.platform.role import Role
from controlplane.platform.roles import NotAllowedError
from controlplane.policies.models.policy import Policy
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.policies.models.scheduled_publish import ScheduledPublish, ScheduleState
from controlplane.policies.publish import StalePolicyError, change_policy, draft, publish_version
from controlplane.policies.scheduled_publishes import (
    ScheduleError,
    cancel_schedule,
    carry_out,
    due_schedules,
    schedule_publish,
)
from gateway.bus.bus import Bus

ACTOR = program("test")
HOUR = timedelta(hours=1)
GRACE = timedelta(minutes=10)
pytestmark = pytest.mark.django_db


@pytest.fixture
def ann(pool: Pool) -> Actor:
    user = User.objects.create(username="ann")
    RoleGrant.objects.create(user=user, role=Role.OPERATOR)
    return person(user, via=CONSOLE)


@pytest.fixture
def version(policy: Policy, pool: Pool, bus: Bus) -> PolicyVersion:
    return draft(policy, {}, actor=ACTOR, message="mine")


@pytest.fixture
def schedule(version: PolicyVersion, ann: Actor) -> ScheduledPublish:
    """Return version 1, scheduled to go live in an hour."""
    return schedule_publish(version, timezone.now() + HOUR, instead_of=None, actor=ann, why="at night")


def live() -> int | None:
    version = Policy.objects.select_related("live_version").get().live_version
    return version.number if version else None


def ended(schedule: ScheduledPublish, at: datetime | None = None) -> tuple[str | None, str]:
    """Execute the scheduled publish a second after its time, and return its outcome."""
    state = carry_out(schedule.pk, at or schedule.at + timedelta(seconds=1), grace=GRACE)
    schedule.refresh_from_db()
    assert schedule.state in (state, ScheduleState.PUBLISHED)
    return state, schedule.problem


def test_version_goes_live_at_its_time_as_its_author(schedule: ScheduledPublish) -> None:
    assert due_schedules(schedule.at - timedelta(seconds=1)) == []
    assert due_schedules(schedule.at) == [schedule.pk]
    assert ended(schedule) == (ScheduleState.PUBLISHED, "")
    assert live() == 1
    event = AuditEvent.objects.get(verb="policy.publish")
    assert (event.actor_name, event.via, event.why) == ("ann", "program", "at night")
    assert AuditEvent.objects.filter(verb__startswith="policy.schedule").count() == 2


def test_scheduled_publish_happens_once(schedule: ScheduledPublish) -> None:
    assert ended(schedule)[0] == ScheduleState.PUBLISHED
    assert carry_out(schedule.pk, schedule.at + GRACE, grace=GRACE) is None
    assert AuditEvent.objects.filter(verb="policy.publish").count() == 1


def test_interrupted_publish_changes_nothing_and_is_repeated(
    schedule: ScheduledPublish, monkeypatch: pytest.MonkeyPatch
) -> None:
    class KilledError(BaseException):
        pass

    def killed(*_args: object, **_options: object) -> None:
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr("controlplane.policies.publish.require_approved", killed)
        with pytest.raises(KilledError):
            carry_out(schedule.pk, schedule.at, grace=GRACE)
    schedule.refresh_from_db()
    assert (schedule.state, live()) == (ScheduleState.WAITING, None)
    assert ended(schedule)[0] == ScheduleState.PUBLISHED


@pytest.mark.parametrize(("late", "state"), [(GRACE, "published"), (GRACE + timedelta(seconds=1), "failed")])
def test_missed_publish_happens_only_within_the_grace_period(
    schedule: ScheduledPublish, late: timedelta, state: str
) -> None:
    end_state, problem = ended(schedule, schedule.at + late)
    assert end_state == state
    assert ("was not running" in problem) == (state == "failed")
    assert live() == (1 if state == "published" else None)


def test_newer_live_version_cancels_a_schedule_at_once(schedule: ScheduledPublish, policy: Policy) -> None:
    publish_version(draft(policy, {"ttft_slo_s": 1.0}, actor=ACTOR), instead_of=None, actor=ACTOR)
    schedule.refresh_from_db()
    assert schedule.state == ScheduleState.CANCELLED
    assert "v2 went live before" in schedule.problem
    assert carry_out(schedule.pk, schedule.at, grace=GRACE) is None
    assert live() == 2


def test_manual_publish_of_the_version_cancels_its_schedule(schedule: ScheduledPublish) -> None:
    publish_version(schedule.version, instead_of=None, actor=ACTOR)
    schedule.refresh_from_db()
    assert (schedule.state, schedule.problem) == (ScheduleState.CANCELLED, "v1 went live before that time by hand.")


def test_publish_without_the_required_approval_fails_with_a_reason(schedule: ScheduledPublish, policy: Policy) -> None:
    change_policy(policy, {"needs_approval": True}, actor=ACTOR)
    state, problem = ended(schedule)
    assert state == ScheduleState.FAILED
    assert "needs the approval of a second person" in problem
    assert live() is None
    event = AuditEvent.objects.get(verb="policy.schedule_fail")
    assert event.after["problem"] == problem


def test_author_without_the_role_publishes_nothing(schedule: ScheduledPublish, ann: Actor) -> None:
    RoleGrant.objects.filter(user=ann.user).delete()
    state, problem = ended(schedule)
    assert (state, live()) == (ScheduleState.FAILED, None)
    assert "requires the role operator in pool chat" in problem


@pytest.mark.parametrize("loss", [{"revoked_at": timezone.now()}, {"role": Role.VIEWER}, {"scopes": ["infer"]}])
def test_a_key_that_lost_its_rights_publishes_nothing(version: PolicyVersion, tenant: Tenant, loss: dict) -> None:
    key, _ = create_api_key(tenant, "ci", actor=ACTOR, scopes=("manage",), role=Role.OPERATOR, pools=("*",))
    made = schedule_publish(version, timezone.now() + HOUR, instead_of=None, actor=machine(key))
    ApiKey.objects.filter(pk=key.pk).update(**loss)
    assert ended(made)[0] == ScheduleState.FAILED
    assert live() is None


def test_key_revoked_over_the_bus_publishes_nothing(version: PolicyVersion, tenant: Tenant, bus: Bus) -> None:
    key, _ = create_api_key(tenant, "ci", actor=ACTOR, scopes=("manage",), role=Role.OPERATOR, pools=("*",))
    made = schedule_publish(version, timezone.now() + HOUR, instead_of=None, actor=machine(key))
    bus_revocations().publish(revocation_of(key.sha256, key.key_id, actor=ACTOR))
    assert ended(made)[0] == ScheduleState.FAILED
    assert live() is None


def test_document_that_became_invalid_fails_with_its_errors(policy: Policy, pool: Pool, bus: Bus) -> None:
    version = PolicyVersion.objects.create(policy=policy, number=1, routing_document={"ttft_slo_s": 3.0})
    made = schedule_publish(version, timezone.now() + HOUR, instead_of=None, actor=ACTOR)
    PolicyVersion.objects.filter(pk=version.pk).update(routing_document={"ttft_slo_s": -1})
    state, problem = ended(made)
    assert state == ScheduleState.FAILED
    assert "ttft_slo_s" in problem


@pytest.mark.parametrize("after", [timedelta(0), -HOUR, timedelta(days=31)])
def test_only_times_within_the_next_month_can_be_scheduled(version: PolicyVersion, after: timedelta) -> None:
    with pytest.raises(InvalidFieldsError, match="within 30 days"):
        schedule_publish(version, timezone.now() + after, instead_of=None, actor=ACTOR)


def test_policy_has_one_scheduled_publish(schedule: ScheduledPublish, policy: Policy) -> None:
    other = draft(policy, {}, actor=ACTOR)
    with pytest.raises(ScheduleError, match="v1 is already scheduled for"):
        schedule_publish(other, timezone.now() + HOUR, instead_of=None, actor=ACTOR)
    cancel_schedule(schedule, actor=ACTOR)
    schedule_publish(other, timezone.now() + HOUR, instead_of=None, actor=ACTOR)


def test_unexpected_live_version_is_reported(version: PolicyVersion) -> None:
    with pytest.raises(StalePolicyError):
        schedule_publish(version, timezone.now() + HOUR, instead_of=7, actor=ACTOR)


def test_scheduled_publish_can_be_cancelled_once_by_a_publisher(schedule: ScheduledPublish) -> None:
    stranger = person(User.objects.create(username="zoe"), via=CONSOLE)
    with pytest.raises(NotAllowedError):
        cancel_schedule(schedule, actor=stranger)
    with pytest.raises(StaleRevisionError):
        cancel_schedule(schedule, actor=ACTOR, expected=9)
    cancel_schedule(schedule, actor=ACTOR, expected=1)
    assert carry_out(schedule.pk, schedule.at, grace=GRACE) is None
    with pytest.raises(ScheduleError, match="nothing to cancel"):
        cancel_schedule(schedule, actor=ACTOR)
    assert (live(), schedule.revision) == (None, 2)
