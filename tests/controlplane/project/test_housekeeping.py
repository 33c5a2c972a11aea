"""Abandoned runs end. Old runs are deleted, except the newest of each job."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from controlplane.platform.models.job_run import JobRun
from controlplane.project.housekeeping import ABANDONED_AFTER, KEPT, abandon_runs, forget_runs

pytestmark = pytest.mark.django_db
SECOND = timedelta(seconds=1)


def test_only_runs_with_a_long_expired_lease_are_abandoned() -> None:
    now = timezone.now()
    for job, lease_until in (("long", now - ABANDONED_AFTER - SECOND), ("short", now - SECOND), ("never", None)):
        JobRun.objects.create(job=job, started_at=now, lease_until=lease_until)
    assert abandon_runs(now) == 1
    assert list(JobRun.objects.exclude(state="active").values_list("job", "state")) == [("long", "abandoned")]


def test_newest_run_of_each_job_is_kept() -> None:
    now = timezone.now()
    old = now - KEPT - SECOND
    for number in range(3):
        JobRun.objects.create(job="a", started_at=old, finished_at=old, state="done", fencing_token=number)
    JobRun.objects.create(job="b", started_at=old, finished_at=now, state="done")
    assert forget_runs(now) == 2
    assert sorted(JobRun.objects.values_list("job", "fencing_token")) == [("a", 2), ("b", 0)]
