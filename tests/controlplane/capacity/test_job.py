"""The job that reads the demand: when it is due, and what it stores."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from controlplane.capacity import job
from controlplane.capacity.demand import STEP_S, logged_demand
from controlplane.capacity.demand_child import demand_of
from controlplane.platform.jobs import calculation
from controlplane.platform.models.job_run import JobRun
from tests.controlplane.capacity.some_days import BEGIN, days, pools

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute in this process, because a child has no access to the test's database."""

    def run(module: str, task: bytes, **_options: object) -> bytes:
        assert module == demand_of.__module__
        return calculation.msgspec.json.encode(demand_of(task, lambda _share: None))

    monkeypatch.setattr(calculation, "run_child", run)
    pools()


def at(monkeypatch: pytest.MonkeyPatch, now: float) -> int:
    """Run the job at this time, and return how many runs there are."""
    monkeypatch.setattr("time.time", lambda: now)
    known = set(JobRun.objects.values_list("pk", flat=True))
    job.capacity()
    moment = datetime.fromtimestamp(now, UTC)
    JobRun.objects.exclude(pk__in=known).update(started_at=moment, finished_at=moment)
    return JobRun.objects.filter(job=job.JOB).count()


def test_demand_is_read_once_for_each_quarter_of_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    end = days(0.1)
    assert at(monkeypatch, end + 59) == 1
    assert at(monkeypatch, end + 61) == 2
    assert at(monkeypatch, end + 120) == 2
    stored = job.stored_demand()
    assert stored is not None
    assert stored[0] == logged_demand(end + 61, 30)
    # Without new requests, nothing is read again.
    assert at(monkeypatch, end + 10 * STEP_S) == 2


def test_without_a_full_quarter_of_an_hour_there_is_no_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    assert at(monkeypatch, BEGIN + 100.0) == 0
    job.start_calculation(job.JOB, {"days": 30})
    at(monkeypatch, BEGIN + 100.0)
    assert JobRun.objects.get(job=job.JOB).outcome == {"summary": "no full quarter of an hour yet"}
    assert job.stored_demand() is None


def test_the_last_days_are_the_end_of_the_demand() -> None:
    whole = logged_demand(days(0.2), 30)
    assert whole is not None
    part = whole.last_days(0.1)
    assert (part.until - part.since, part.until) == (9 * STEP_S, whole.until)
    assert part.regions["us"] == whole.regions["us"][-9:]
    assert whole.last_days(30) == whole
