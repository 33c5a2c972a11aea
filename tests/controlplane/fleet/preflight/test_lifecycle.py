"""Preflights are requested, stored as job runs, and read back."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from controlplane.access.models.role_grant import RoleGrant
from controlplane.fleet.engine_registration import register_engine
from controlplane.fleet.engine_url import RejectedUrlError
from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool
from controlplane.fleet.preflight.checks import EventSource
from controlplane.fleet.preflight.lifecycle import (
    JOB,
    as_preflight,
    failed_engines,
    preflight_of,
    register_for_preflight,
    start_preflight,
)
from controlplane.fleet.preflight.outcome import conclude
from controlplane.fleet.preflight.steps import (
    FAILED,
    NAMES,
    OK,
    PENDING,
    SKIPPED,
    Step,
    fresh_steps,
    from_progress,
    replaced,
    to_progress,
)
from controlplane.platform.actor import CONSOLE, Actor, person, program
from controlplane.platform.field_problems import InvalidFieldsError
from controlplane.platform.jobs.lease import acquire, renew
from controlplane.platform.models.job_run import JobRun, JobState
from controlplane.platform.role import Role
from controlplane.platform.roles import NotAllowedError
from controlplane.publication.snapshot import build_snapshot
from gateway.bus.bus import Bus

pytestmark = pytest.mark.django_db
PROGRAM = program("test")
PASSED = tuple(Step(key=key, state=OK, sentence="fine") for key in NAMES)
STOPPED = replaced(fresh_steps(), Step(key="model", state=FAILED, sentence="It serves x.", remedy="Do y."))


@pytest.fixture
def engine(pool: Pool, bus: Bus) -> Engine:
    return register_for_preflight(pool, "a", "http://10.0.0.1:8000", actor=PROGRAM)


def member(name: str, role: Role, pool: Pool) -> Actor:
    user = User.objects.create(username=name)
    RoleGrant.objects.create(user=user, role=role, pool=pool)
    return person(user, via=CONSOLE)


def run_of(engine: Engine) -> JobRun:
    return JobRun.objects.filter(job=JOB, shard=engine.pk).latest("pk")


def test_engine_accepts_no_requests_before_its_preflight_passed(engine: Engine) -> None:
    (entry,) = build_snapshot(at=0.0).engines
    assert entry.desired_state == "maintenance"
    seen = preflight_of(engine)
    assert seen is not None
    assert (seen.state, seen.then_ready, {step.state for step in seen.steps}) == ("waiting", True, {PENDING})


@pytest.mark.parametrize(("name", "url"), [("a b", "http://10.0.0.1"), ("a", "http://169.254.169.254")])
def test_rejected_engine_leaves_nothing_behind(pool: Pool, bus: Bus, name: str, url: str) -> None:
    with pytest.raises((InvalidFieldsError, RejectedUrlError)):
        register_for_preflight(pool, name, url, actor=PROGRAM)
    assert not Engine.objects.exists()
    assert not JobRun.objects.exists()


def test_viewers_cannot_start_preflights(engine: Engine, pool: Pool) -> None:
    with pytest.raises(NotAllowedError):
        start_preflight(engine, actor=member("v", Role.VIEWER, pool))
    start_preflight(engine, actor=member("o", Role.OPERATOR, pool))
    assert run_of(engine).inputs["by"] == "o"


def test_newer_preflight_replaces_a_running_one(engine: Engine) -> None:
    lease = acquire(JOB, "holder", timedelta(minutes=1), shard=engine.pk)
    assert lease is not None
    first = run_of(engine)
    start_preflight(engine, actor=PROGRAM)
    first.refresh_from_db()
    assert (first.state, as_preflight(first).state) == (JobState.ABANDONED, "ended")
    assert renew(lease, timedelta(minutes=1)) is None
    assert run_of(engine).fencing_token > lease.fencing_token
    assert acquire(JOB, "other", timedelta(minutes=1), shard=engine.pk) is not None


def test_checklist_is_restored_from_the_run(engine: Engine) -> None:
    lease = acquire(JOB, "holder", timedelta(minutes=1), shard=engine.pk)
    assert lease is not None
    checklist = replaced(fresh_steps(), Step(key="reachable", state=OK, sentence="Reachable in 3 ms."))
    renew(lease, timedelta(minutes=1), progress=to_progress(checklist))
    seen = preflight_of(engine)
    assert seen is not None
    assert (seen.state, seen.steps) == ("running", checklist)


def test_steps_after_a_failure_are_skipped() -> None:
    assert [step.state for step in STOPPED] == [SKIPPED, SKIPPED, FAILED, *[SKIPPED] * 4]


@pytest.mark.parametrize("progress", [None, {}, {"steps": "x"}, {"steps": [{"no": 1}]}, [1]])
def test_unreadable_progress_gives_a_fresh_checklist(progress: object) -> None:
    assert from_progress(progress) == fresh_steps()


def test_failed_preflights_are_listed_by_engine(engine: Engine, pool: Pool) -> None:
    other = register_engine(pool, "b", "http://10.0.0.2:8000", actor=PROGRAM)
    now = timezone.now()
    JobRun.objects.filter(shard=engine.pk).update(state=JobState.FAILED, finished_at=now, progress=to_progress(STOPPED))
    failed = failed_engines([engine.pk, other.pk])
    assert list(failed) == [engine.pk]
    assert failed[engine.pk].failure == STOPPED[2]
    assert failed[engine.pk].stopped_at == 3
    start_preflight(engine, actor=PROGRAM)
    JobRun.objects.filter(shard=engine.pk, state=JobState.ACTIVE).update(state=JobState.DONE, finished_at=now)
    assert failed_engines([engine.pk, other.pk]) == {}


def test_passed_preflight_sets_the_engine_ready_and_stores_its_sockets(engine: Engine) -> None:
    source = EventSource("tcp://10.0.0.1:5557", "tcp://10.0.0.1:5558", discovered=True)
    outcome = conclude(run_of(engine).pk, engine.revision, PASSED, source)
    engine.refresh_from_db()
    assert outcome == {"result": "passed", "remark": "Its event socket is stored. It is serving."}
    assert (engine.desired_state, engine.kv_events_endpoint) == ("ready", "tcp://10.0.0.1:5557")


def test_reported_block_size_is_adopted_only_if_no_other_engine_is_in_use(engine: Engine, pool: Pool) -> None:
    other = Engine.objects.create(
        pool=pool, name="other", url="http://10.0.0.9:8000", connect_url="http://10.0.0.9:8000"
    )
    outcome = conclude(run_of(engine).pk, engine.revision, PASSED, EventSource(), 32)
    pool.refresh_from_db()
    engine.refresh_from_db()
    assert (pool.block_tokens, engine.desired_state) == (512, "maintenance")
    assert "Another engine came into use meanwhile" in outcome["remark"]
    other.delete()
    conclude(run_of(engine).pk, engine.revision, PASSED, EventSource(), 32)
    pool.refresh_from_db()
    engine.refresh_from_db()
    assert (pool.block_tokens, engine.desired_state) == (32, "ready")


def test_passed_preflight_without_then_ready_changes_nothing(engine: Engine) -> None:
    start_preflight(engine, actor=PROGRAM, then_ready=False)
    assert conclude(run_of(engine).pk, engine.revision, PASSED, EventSource())["remark"] == ""
    engine.refresh_from_db()
    assert engine.desired_state == "maintenance"


def test_failure_names_step_and_remedy(engine: Engine) -> None:
    assert conclude(run_of(engine).pk, engine.revision, STOPPED, EventSource()) == {
        "result": "failed",
        "step": "model",
        "reason": "It serves x.",
        "remedy": "Do y.",
    }


def test_event_socket_outside_the_allowed_networks_is_not_stored(engine: Engine) -> None:
    source = EventSource("tcp://169.254.169.254:80", "", discovered=True)
    assert "was not stored" in conclude(run_of(engine).pk, engine.revision, PASSED, source)["remark"]
    engine.refresh_from_db()
    assert (engine.desired_state, engine.kv_events_endpoint) == ("maintenance", "")


def test_deactivated_requester_sets_no_engine_ready(engine: Engine, pool: Pool) -> None:
    actor = member("gone", Role.OPERATOR, pool)
    start_preflight(engine, actor=actor, then_ready=True)
    User.objects.filter(username="gone").update(is_active=False)
    assert "may no longer set engines ready" in conclude(run_of(engine).pk, engine.revision, PASSED, EventSource()).get(
        "remark", ""
    )
