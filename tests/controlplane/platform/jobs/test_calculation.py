"""Calculations in child processes: their results, failures, progress, and ends."""

from __future__ import annotations

import pytest
from django.utils import timezone

from controlplane.platform.conflict import ConflictError
from controlplane.platform.jobs import calculation
from controlplane.platform.jobs.calculation import calculated, serve_calculations, start_calculation
from controlplane.platform.jobs.cooperative_stop import stop_requested
from controlplane.platform.jobs.lease import renew
from controlplane.platform.models.job_run import JobRun, JobState

pytestmark = pytest.mark.django_db
JOB, CHILD = "sums", "tests.controlplane.platform.jobs.summing_child"


def serve() -> None:
    serve_calculations(JOB, CHILD, lambda result: f"the sum is {result}")


def test_the_newest_result_is_kept_with_its_summary() -> None:
    first = start_calculation(JOB, {"numbers": [1, 2]})
    serve()
    second = start_calculation(JOB, {"numbers": [3, 4]})
    serve()
    newest = calculated(JOB)
    assert newest == second
    assert (newest.memory, newest.outcome) == ({"result": 7}, {"summary": "the sum is 7"})
    first.refresh_from_db()
    assert (first.state, first.memory) == (JobState.DONE, {})
    assert second.fencing_token > first.fencing_token


def test_only_one_runs_at_a_time_and_none_is_served_without_a_request() -> None:
    serve()
    assert not JobRun.objects.exists()
    start_calculation(JOB, {"numbers": [1]})
    with pytest.raises(ConflictError, match="Another calculation is running"):
        start_calculation(JOB, {"numbers": [2]})


def test_a_failed_calculation_states_its_reason_and_keeps_the_last_result() -> None:
    start_calculation(JOB, {"numbers": [5]})
    serve()
    failed = start_calculation(JOB, {"numbers": []})
    serve()
    failed.refresh_from_db()
    assert (failed.state, failed.outcome) == (JobState.FAILED, {"reason": "no numbers"})
    kept = calculated(JOB)
    assert kept is not None
    assert kept.memory == {"result": 5}


def test_a_child_that_dies_is_reported() -> None:
    run = start_calculation(JOB, {"dies": True})
    serve()
    run.refresh_from_db()
    assert run.outcome == {"reason": "the child process ended with status 3 and no result"}


def test_its_progress_is_stored_and_a_request_to_cancel_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calculation, "RENEW_S", 0.0)
    run = start_calculation(JOB, {"slow": True})
    shares = []

    def cancel_at_half(*args: object, **kwargs: object) -> object:
        held = renew(*args, **kwargs)  # type: ignore[arg-type]
        shares.append(JobRun.objects.get(pk=run.pk).progress["done"])
        if shares[-1] == 50:
            JobRun.objects.filter(pk=run.pk).update(cancel_requested_at=timezone.now())
        return held

    monkeypatch.setattr(calculation, "renew", cancel_at_half)
    serve()
    run.refresh_from_db()
    assert (run.state, shares[-1]) == (JobState.CANCELLED, 50)


def test_a_shutdown_releases_it_for_the_next_process() -> None:
    run = start_calculation(JOB, {"slow": True})
    stop_requested.set()
    try:
        serve()
    finally:
        stop_requested.clear()
    run.refresh_from_db()
    assert (run.state, run.lease_owner) == (JobState.ACTIVE, "")
