"""A scheduled publish happens once, even with several workers of which one is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from datetime import timedelta

import pytest
from django.conf import settings
from django.db import OperationalError, connection, connections
from django.utils import timezone

from controlplane.fleet.models.pool import Pool
from controlplane.platform.actor import program
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.policies.models.policy import Policy
from controlplane.policies.models.scheduled_publish import ScheduledPublish, ScheduleState
from controlplane.policies.publish import draft
from controlplane.policies.scheduled_publishes import schedule_publish, scheduled_publish
from gateway.bus.bus import Bus

ACTOR = program("test")
pytestmark = pytest.mark.django_db(transaction=True)

KILLED = """
import os, django
django.setup()
import controlplane.policies.publish as policies
policies.require_approved = lambda version: os.kill(os.getpid(), 9)
from controlplane.policies.scheduled_publishes import scheduled_publish
scheduled_publish()
"""


@pytest.fixture
def due(policy: Policy, pool: Pool, bus: Bus) -> ScheduledPublish:
    """Return a scheduled publish that has just become due."""
    version = draft(policy, {}, actor=ACTOR)
    made = schedule_publish(version, timezone.now() + timedelta(hours=1), instead_of=None, actor=ACTOR)
    ScheduledPublish.objects.update(at=timezone.now() - timedelta(seconds=1))
    return made


def published() -> int:
    return AuditEvent.objects.filter(verb="policy.publish").count()


def test_one_of_several_workers_publishes(due: ScheduledPublish) -> None:
    start = threading.Barrier(5)
    errors: list[Exception] = []

    def work() -> None:
        start.wait()
        try:
            scheduled_publish()
        except OperationalError as error:
            errors.append(error)
        finally:
            connections.close_all()

    workers = [threading.Thread(target=work) for _ in range(5)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    due.refresh_from_db()
    assert (errors, due.state, published()) == ([], ScheduleState.PUBLISHED, 1)


def test_publish_missed_beyond_the_grace_period_is_reported_and_not_executed(due: ScheduledPublish) -> None:
    late = timedelta(minutes=settings.PUBLISH_GRACE_MIN + 1)
    ScheduledPublish.objects.update(at=timezone.now() - late)
    scheduled_publish()
    due.refresh_from_db()
    assert (due.state, published()) == (ScheduleState.FAILED, 0)
    assert "11 min later, after the grace period of 10 min" in due.problem


def test_failing_publish_does_not_delay_others(
    due: ScheduledPublish, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("controlplane.policies.scheduled_publishes.publish_version", None)
        scheduled_publish()
    assert "a scheduled release failed" in caplog.text
    scheduled_publish()
    assert published() == 1


@pytest.mark.processes
@pytest.mark.skipif(connection.vendor != "sqlite", reason="the other process needs a database file")
def test_publish_of_a_killed_worker_is_left_to_the_next(due: ScheduledPublish) -> None:
    name = connection.settings_dict["NAME"]
    environment = {
        **os.environ,
        "DATABASE_URL": f"sqlite:///{name}",
        "DJANGO_SETTINGS_MODULE": "controlplane.project.settings",
        "HEADWAY_STATE_DIR": str(settings.STATE_DIR),
    }
    options = {"env": environment, "cwd": settings.BASE_DIR, "timeout": 60}
    died = subprocess.run([sys.executable, "-c", KILLED], check=False, **options)
    assert died.returncode == -signal.SIGKILL
    due.refresh_from_db()
    assert (due.state, published(), Policy.objects.get().live_version) == (ScheduleState.WAITING, 0, None)
    scheduled_publish()
    due.refresh_from_db()
    assert (due.state, published()) == (ScheduleState.PUBLISHED, 1)
