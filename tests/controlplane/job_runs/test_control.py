"""Holders receive cancellations, and a retry creates one run. Both are audited and require the operator role."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from controlplane.access.models.role_grant import RoleGrant
from controlplane.fleet.engine_registration import register_engine
from controlplane.fleet.models.pool import Pool
from controlplane.job_runs import control as job_control
from controlplane.job_runs.control import JobControlError
from controlplane.platform.actor import CONSOLE, Actor, person, program
from controlplane.platform.jobs.lease import acquire, finish, renew
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.models.job_run import JobRun, JobState
from controlplane.platform.role import Role
from controlplane.platform.roles import NotAllowedError

pytestmark = pytest.mark.django_db
TERM = timedelta(seconds=30)
PROGRAM = program("test")


def actor_with(role: Role | None, pool: Pool | None = None) -> Actor:
    user = User.objects.create(username=f"{role}-{pool}")
    if role is not None:
        RoleGrant.objects.create(user=user, role=role, pool=pool)
    return person(user, via=CONSOLE)


def held_run(job: str = "probe") -> tuple[JobRun, object]:
    lease = acquire(job, "me", TERM)
    assert lease is not None
    return JobRun.objects.get(pk=lease.run_id), lease


def test_holder_receives_a_cancellation_at_its_next_renewal() -> None:
    run, lease = held_run()
    lease = renew(lease, TERM, progress={"done": 1})
    assert lease is not None
    after = job_control.cancel(run, actor=actor_with(Role.OPERATOR), why="stuck")
    assert after.state == JobState.ACTIVE
    assert renew(lease, TERM, progress={"done": 2}) is None
    run.refresh_from_db()
    assert (run.state, run.progress, run.outcome) == (
        JobState.CANCELLED,
        {"done": 1},
        {"reason": "the run was cancelled"},
    )
    assert run.finished_at is not None
    event = AuditEvent.objects.get(verb="job.cancel")
    assert (event.object_kind, event.object_id, event.why) == ("job_run", str(run.pk), "stuck")
    assert acquire("probe", "other", TERM) is not None


def test_holder_that_finishes_before_its_renewal_completes_the_run() -> None:
    run, lease = held_run()
    job_control.cancel(run, actor=PROGRAM)
    assert finish(lease, outcome={"moved": 3})
    run.refresh_from_db()
    assert run.state == JobState.DONE
    with pytest.raises(JobControlError, match="already ended"):
        job_control.cancel(run, actor=PROGRAM)


def test_waiting_run_is_cancelled_at_once() -> None:
    run = JobRun.objects.create(job="what_if", started_at=timezone.now(), lease_until=timezone.now())
    after = job_control.cancel(run, actor=PROGRAM)
    assert after.state == JobState.CANCELLED
    assert acquire("what_if", "me", TERM).run_id != run.pk


def test_cancelled_run_of_a_crashed_holder_ends_when_its_lease_expires() -> None:
    run, _ = held_run()
    job_control.cancel(run, actor=PROGRAM)
    JobRun.objects.filter(pk=run.pk).update(lease_until=timezone.now() - TERM)
    assert acquire("probe", "other", TERM) is None
    run.refresh_from_db()
    assert run.state == JobState.CANCELLED
    assert acquire("probe", "other", TERM) is not None


def test_repeated_cancellation_is_audited_once() -> None:
    run, _ = held_run()
    job_control.cancel(run, actor=PROGRAM)
    job_control.cancel(run, actor=PROGRAM)
    assert AuditEvent.objects.filter(verb="job.cancel").count() == 1


def test_retry_has_the_same_inputs_and_waits_for_a_holder() -> None:
    run, lease = held_run("what_if")
    JobRun.objects.filter(pk=run.pk).update(inputs={"trace": "t1"})
    finish(lease, outcome={"error": "no recording"}, state=JobState.FAILED)
    run.refresh_from_db()
    again = job_control.retry(run, actor=actor_with(Role.OPERATOR), why="recorded meanwhile")
    assert (again.inputs, again.retry_of_id, again.state) == ({"trace": "t1"}, run.pk, JobState.ACTIVE)
    taken = acquire("what_if", "other", TERM)
    assert taken is not None
    assert taken.run_id == again.pk
    assert taken.fencing_token > lease.fencing_token
    assert AuditEvent.objects.get(verb="job.retry").object_id == str(again.pk)
    with pytest.raises(JobControlError, match=f"Run {again.pk}"):
        job_control.retry(run, actor=PROGRAM)


@pytest.mark.parametrize("role", [None, Role.VIEWER])
def test_viewers_cannot_control_runs(role: Role | None) -> None:
    run, lease = held_run()
    asker = actor_with(role)
    with pytest.raises(NotAllowedError):
        job_control.cancel(run, actor=asker)
    finish(lease, outcome={})
    with pytest.raises(NotAllowedError):
        job_control.retry(run, actor=asker)
    assert not AuditEvent.objects.exists()


def test_pool_operator_controls_only_runs_of_that_pool(pool: Pool) -> None:
    engine = register_engine(pool, "e-01", "http://127.0.0.1:9000", actor=PROGRAM)
    own = JobRun.objects.create(
        job="preflight", shard=engine.pk, state=JobState.FAILED, started_at=timezone.now(), finished_at=timezone.now()
    )
    probe, _ = held_run()
    asker = actor_with(Role.OPERATOR, pool)
    again = job_control.retry(own, actor=asker)
    assert AuditEvent.objects.get(verb="job.retry").pool_slug == pool.slug
    job_control.cancel(again, actor=asker)
    with pytest.raises(NotAllowedError):
        job_control.cancel(probe, actor=asker)
