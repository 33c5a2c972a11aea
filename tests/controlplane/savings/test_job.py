"""The nightly job: when a day is due, what its child reads from the log, restarts, and permissions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import msgspec
import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.utils import timezone

from controlplane.fleet.models.pool import Pool
from controlplane.fleet.topology import create_tenant
from controlplane.job_runs.control import pool_of
from controlplane.platform.actor import program
from controlplane.platform.bus import fleet_keyring
from controlplane.platform.conflict import ConflictError
from controlplane.platform.field_problems import InvalidFieldsError
from controlplane.platform.jobs import calculation
from controlplane.platform.jobs.calculation import LEASE
from controlplane.platform.jobs.lease import take_waiting
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.models.job_run import JobRun, JobState
from controlplane.savings import job
from controlplane.savings.models.savings_rows import JOB, Saving, SavingsDay, SavingsState
from controlplane.savings.replay_child import DayTask, replayed
from gateway.bus.bus import Bus
from gateway.contracts.stored_decision import DIGESTS
from gateway.reports.traffic_rows import tenant_digest
from planning.savings import day_windows as windows
from routing.values.prepared_struct import prepared
from simulator.child_task import ChildCancelledError
from simulator.savings.day_replay import ROUTERS
from tests.controlplane.request_log.recordings.traffic import START, record, rows
from tests.controlplane.savings.some_days import result
from tests.controlplane.trials.canary.scene import live_version

pytestmark = pytest.mark.django_db
ACTOR = program("test")
DAY = datetime.fromtimestamp(START, UTC).date()
NIGHT = datetime(DAY.year, DAY.month, DAY.day, tzinfo=UTC) + timedelta(days=1, minutes=21)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, bus: Bus) -> None:
    """Answer each task with the same day."""

    def run(module: str, task: bytes, **_options: object) -> bytes:
        assert module == replayed.__module__
        assert msgspec.json.decode(task, type=prepared(DayTask)).pool == "chat"
        return msgspec.json.encode(result())

    monkeypatch.setattr(calculation, "run_child", run)


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch, quick: None) -> None:
    """Replay small windows in this process, because a child has no access to the test's database."""
    monkeypatch.setattr(
        calculation, "run_child", lambda _module, task, **_: msgspec.json.encode(replayed(task, lambda _: None))
    )
    monkeypatch.setattr(windows, "MOST_COUNTED", 40)
    monkeypatch.setattr(windows, "MOST_WARMUP", 10)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[datetime], None]:
    return lambda at: monkeypatch.setattr(timezone, "now", lambda: at)


@pytest.fixture
def recorded(pool: Pool) -> Pool:
    """Return a pool with a live version, two earlier ones, and ten hours of traffic of a tenant."""
    create_tenant("acme", "Acme", actor=ACTOR)
    for placement in ("round_robin", "least_loaded", "least_cost"):
        live_version(pool.policy, placement)
    digest = tenant_digest(fleet_keyring().keys(DIGESTS).used, "acme")
    made = rows(600, tenant=digest, policy_version=3, prompt_tokens=1500, output_tokens=4, engines=2)
    # One a minute.
    spread = [msgspec.structs.replace(row, arrived_at=START + 60.0 * number) for number, row in enumerate(made)]
    for first in range(0, 600, 100):
        record(spread[first : first + 100])
    return Pool.objects.get(pk=pool.pk)


def replay(pool: Pool, day: date = DAY) -> SavingsDay:
    job.start_replay(pool, day, actor=ACTOR)
    job.savings()
    return SavingsDay.objects.get(day=day, pool=pool.slug)


@pytest.mark.usefixtures("real")
def test_a_recorded_day_is_replayed_and_stored(recorded: Pool, clock: Callable[[datetime], None]) -> None:
    clock(NIGHT)
    stored = replay(recorded)
    assert (stored.state, stored.requests, stored.windows, stored.versions) == (SavingsState.REPLAYED, 600, 8, [3])
    assert stored.hours == pytest.approx(599 / 60, rel=0.01)
    assert stored.recorded_late == 0
    assert set(stored.savings.values_list("alternative", flat=True)) == {*ROUTERS, "v1", "v2"}
    assert set(stored.savings.values_list("tenant", flat=True)) == {"", "acme"}
    run = JobRun.objects.get(job=JOB, inputs__day=DAY.isoformat())
    assert run.state == JobState.DONE
    assert pool_of(run) == recorded
    assert AuditEvent.objects.filter(verb="savings.replay", pool_slug="chat").count() == 1


@pytest.mark.usefixtures("real")
def test_a_day_without_traffic_of_the_pool_is_not_recorded(recorded: Pool, clock: Callable[[datetime], None]) -> None:
    clock(NIGHT + timedelta(days=9))
    stored = replay(recorded, DAY + timedelta(days=3))
    assert (stored.state, stored.requests) == (SavingsState.NOT_RECORDED, 0)
    assert not Saving.objects.exists()


def test_a_replay_that_was_interrupted_is_done_once_by_the_next_holder(
    recorded: Pool, clock: Callable[[datetime], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock(NIGHT)

    def cancelled(*_given: object, **_options: object) -> bytes:
        raise ChildCancelledError("it was cancelled")

    job.start_replay(recorded, DAY, actor=ACTOR)
    with monkeypatch.context() as patch:
        patch.setattr(calculation, "run_child", cancelled)
        lease = take_waiting(JOB, LEASE)[0]
        job._replay(lease)
    assert not SavingsDay.objects.exists()
    clock(NIGHT + timedelta(minutes=1))
    job.savings()
    once = list(
        Saving.objects.order_by("alternative", "tenant").values_list("alternative", "tenant", "engine_h", "late")
    )
    job.savings()
    assert SavingsDay.objects.filter(day=DAY).count() == 1
    replay(recorded)
    again = Saving.objects.order_by("alternative", "tenant").values_list("alternative", "tenant", "engine_h", "late")
    assert list(again) == once


def test_a_holder_that_lost_its_lease_stores_nothing(recorded: Pool, clock: Callable[[datetime], None]) -> None:
    clock(NIGHT)
    job.start_replay(recorded, DAY, actor=ACTOR)
    lost = take_waiting(JOB, LEASE)[0]
    JobRun.objects.update(fencing_token=lost.fencing_token + 1, lease_owner="another process")
    job._replay(lost)
    assert not SavingsDay.objects.exists()


def started(now: datetime) -> int:
    return job.start_due(now)


def test_each_pool_is_due_once_after_its_day_has_ended(pool: Pool, clock: Callable[[datetime], None]) -> None:
    early = NIGHT - timedelta(minutes=2)
    clock(early)
    # Twenty minutes after midnight the day before is due; until then the one before that.
    assert started(early) == 1
    assert JobRun.objects.get().inputs["day"] == (DAY - timedelta(days=1)).isoformat()
    assert started(early) == 0
    job.savings()
    clock(NIGHT)
    assert started(NIGHT) == 1
    job.savings()
    assert JobRun.objects.filter(inputs__day=DAY.isoformat()).count() == 1
    # A run that failed is not repeated: the pool has no live version.
    assert JobRun.objects.filter(state=JobState.FAILED).count() == 2
    assert started(NIGHT + timedelta(hours=3)) == 0


def test_a_day_replayed_before_its_end_is_replayed_again(recorded: Pool, clock: Callable[[datetime], None]) -> None:
    noon = NIGHT - timedelta(hours=12)
    clock(noon)
    assert replay(recorded).computed_at == noon
    clock(NIGHT)
    job.savings()
    assert SavingsDay.objects.get(day=DAY).computed_at == NIGHT


def test_replays_can_be_off_and_do_not_foresee(
    recorded: Pool, clock: Callable[[datetime], None], settings: Any
) -> None:
    clock(NIGHT)
    with pytest.raises(InvalidFieldsError, match="not begun"):
        job.start_replay(recorded, NIGHT.date() + timedelta(days=1), actor=ACTOR)
    job.start_replay(recorded, DAY, actor=ACTOR)
    with pytest.raises(ConflictError):
        job.start_replay(recorded, DAY, actor=ACTOR)
    JobRun.objects.all().delete()
    settings.SAVINGS_CPU_S = 0
    job.savings()
    assert not JobRun.objects.exists()
    with pytest.raises(InvalidFieldsError, match="HEADWAY_SAVINGS_CPU_S"):
        job.start_replay(recorded, DAY, actor=ACTOR)


def test_the_command_starts_a_replay(recorded: Pool, clock: Callable[[datetime], None]) -> None:
    clock(NIGHT)
    call_command("replay_savings", "chat")
    assert JobRun.objects.get().inputs == {"pool": "chat", "day": DAY.isoformat()}
    with pytest.raises(CommandError, match="no pool"):
        call_command("replay_savings", "none")
