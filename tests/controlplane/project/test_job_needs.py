"""Jobs are needed when they have work, and at once when work appears; an idle installation needs almost none."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.utils import timezone

from controlplane.automation.models.engine_action import EngineAction
from controlplane.fleet.models.engine import DesiredState, Engine
from controlplane.fleet.models.pool import Pool
from controlplane.kv_nodes.models.kv_node import KvNode
from controlplane.platform.jobs.lease import acquire, release, this_owner
from controlplane.platform.models.job_run import JobRun
from controlplane.platform.models.snapshot_version import SnapshotVersion
from controlplane.project.celery import app
from controlplane.project.job_needs import NEEDS, READ_EVERY_S, JobNeeds, read_counts
from controlplane.publication.snapshot import publish_if_newer
from gateway.bus.bus import Bus

pytestmark = pytest.mark.django_db
ALWAYS = {"store_revocations", "housekeeping"}
OF_POOLS = {
    "engine_health", "rebalance", "scaling", "prefill_decode", "holdback", "shadows", "store_requests",
    "store_key_usage", "store_learned_costs", "rollup", "incidents", "store_usage", "notify",
}  # fmt: skip


@pytest.fixture(autouse=True)
def published(bus: Bus, db: None) -> None:
    """Publish the empty database."""
    publish_if_newer()


def needed() -> set[str]:
    """Return the jobs of the schedule that are needed now."""
    needs = JobNeeds()
    tasks = {entry["task"] for entry in app.conf.beat_schedule.values()}
    return {task.removeprefix("controlplane.") for task in tasks if needs(task)}


def engine(pool: Pool, **fields: Any) -> Engine:
    return Engine.objects.create(pool=pool, name="e", engine_id="e", url="http://e", connect_url="http://e", **fields)


def test_every_listed_job_is_in_the_schedule() -> None:
    tasks = {entry["task"].removeprefix("controlplane.") for entry in app.conf.beat_schedule.values()}
    assert tasks - NEEDS.keys() == ALWAYS
    assert NEEDS.keys() <= tasks


def test_an_installation_without_a_pool_needs_almost_nothing() -> None:
    assert needed() == ALWAYS


def test_a_version_that_is_not_the_published_one_needs_its_publication(bus: Bus) -> None:
    SnapshotVersion.objects.create(version=3)
    assert needed() == ALWAYS | {"refresh_snapshot"}
    publish_if_newer()
    assert needed() == ALWAYS
    SnapshotVersion.objects.update(version=2)
    assert needed() == ALWAYS | {"refresh_snapshot"}


def test_a_pool_needs_its_rounds_and_a_node_its_checks(pool: Pool) -> None:
    assert needed() == ALWAYS | OF_POOLS
    KvNode.objects.create(name="kv-1", address="127.0.0.1:1")
    assert needed() == ALWAYS | OF_POOLS | {"kv_node_silence", "kv_moves"}


def test_an_engine_needs_a_probe_until_its_shard_is_held(pool: Pool) -> None:
    made = engine(pool, desired_state=DesiredState.MAINTENANCE)
    assert "probe" not in needed()
    Engine.objects.filter(pk=made.pk).update(desired_state=DesiredState.READY)
    assert needed() >= {"probe", "engine_addresses"}
    lease = acquire("probe", this_owner(), timedelta(seconds=60))
    assert "probe" not in needed()
    assert lease is not None
    release(lease)
    assert "probe" in needed()


def test_a_round_that_is_due_is_needed_when_its_pause_ends(pool: Pool) -> None:
    acquire("scaling", this_owner(), timedelta(seconds=5), shard=pool.pk)
    now = timezone.now()
    assert NEEDS["scaling"](read_counts(now)) is False
    assert NEEDS["scaling"](read_counts(now + timedelta(seconds=5))) is True


@pytest.mark.parametrize("job", ["preflight", "whatif"])
def test_a_waiting_run_needs_its_job_and_a_held_or_ended_one_does_not(job: str) -> None:
    now = timezone.now()
    JobRun.objects.create(job=job, shard=1, started_at=now, lease_until=now)
    assert job in needed()
    lease = acquire(job, this_owner(), timedelta(seconds=60), shard=1)
    assert lease is not None
    assert job not in needed()


def test_an_open_action_needs_its_job(pool: Pool) -> None:
    now = timezone.now()
    action = EngineAction.objects.create(
        key="k", pool=pool, kind="start", by="p", next_try_at=now, deadline_at=now, requested_at=now
    )
    assert "engine_actions" in needed()
    EngineAction.objects.filter(pk=action.pk).update(state="done")
    assert "engine_actions" not in needed()


def test_all_jobs_together_take_two_statements(django_assert_num_queries: Callable[[int], Any], pool: Pool) -> None:
    now_s = 0.0
    needs = JobNeeds(lambda: now_s)
    with django_assert_num_queries(2):
        for job in NEEDS:
            needs(f"controlplane.{job}")
    now_s = READ_EVERY_S
    with django_assert_num_queries(2):
        assert needs("controlplane.scaling")
    needs.forget()
    with django_assert_num_queries(2):
        assert needs("controlplane.scaling")


def test_without_an_answer_of_the_database_every_job_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OperationalError

    monkeypatch.setattr(connection, "cursor", broken)
    monkeypatch.setattr(connection, "close", lambda: None)
    needs = JobNeeds()
    assert all(needs(f"controlplane.{job}") for job in NEEDS)
