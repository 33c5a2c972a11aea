"""Runs of a job that compute one value in a child process, one at a time, for people who wait for it.

The task is the run's `inputs`, the value is `memory["result"]` of the run that is done.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import msgspec
from django.db import IntegrityError, transaction
from django.db.models import Max
from django.utils import timezone

from controlplane.platform.conflict import ConflictError
from controlplane.platform.jobs.cooperative_stop import stop_requested
from controlplane.platform.jobs.lease import Lease, finish, release, renew, take_waiting
from controlplane.platform.jobs.wake import wake
from controlplane.platform.models.job_run import JobRun, JobState
from simulator.child_task import ChildCancelledError, ChildTaskError, run_child

LEASE = timedelta(seconds=20)
RENEW_S = 1.0
MAX_S = 900.0

logger = logging.getLogger(__name__)


def start_calculation(job: str, inputs: Mapping[str, Any], *, shard: int = 0) -> JobRun:
    """Store a waiting run with these inputs and wake the job. Raises ConflictError while one of the shard runs."""
    now = timezone.now()
    token = JobRun.objects.filter(job=job, shard=shard).aggregate(token=Max("fencing_token"))["token"] or 0
    try:
        with transaction.atomic():
            # A lease that has run out already: the next search for work takes the run.
            run = JobRun.objects.create(
                job=job, shard=shard, inputs=inputs, lease_until=now, fencing_token=token + 1, started_at=now,
                progress={"done": 0, "of": 100},
            )  # fmt: skip
            wake([job])
    except IntegrityError as error:
        raise ConflictError("Another calculation is running; try again when it has ended.") from error
    return run


def calculated(job: str) -> JobRun | None:
    """Return the newest run of the job with a result."""
    return JobRun.objects.filter(job=job, state=JobState.DONE).order_by("-finished_at", "-pk").first()


def serve_calculations(job: str, module: str, summary: Callable[[Any], str]) -> None:
    """Compute the waiting run of the job, if there is one, with `python -m module`.

    `summary` describes a result in one line. Only the newest result is kept.
    """
    for lease in take_waiting(job, LEASE):
        end_in_any_case(lease, lambda lease: _serve(lease, module, summary))


def end_in_any_case(
    lease: Lease, work: Callable[[Lease], None], expected: tuple[type[Exception], ...] = (ChildTaskError,)
) -> None:
    """Do the work of a run, and end the run if that fails, because it would otherwise repeat forever."""
    try:
        work(lease)
    except expected as error:
        finish(lease, outcome={"reason": str(error)}, state=JobState.FAILED)
    except Exception as error:
        # The edge of the job.
        logger.exception("a calculation failed")
        reason = f"the calculation itself failed ({type(error).__name__})"
        finish(lease, outcome={"reason": reason}, state=JobState.FAILED)


def _serve(lease: Lease, module: str, summary: Callable[[Any], str]) -> None:
    run = JobRun.objects.get(pk=lease.run_id)
    watch = RunWatch(lease)
    encoded = run_watched(watch, module, msgspec.json.encode(run.inputs), MAX_S)
    if encoded is None:
        return
    result = msgspec.json.decode(encoded)
    with transaction.atomic():
        # The end decides: a holder that lost its lease stores no result.
        if finish(watch.lease, outcome={"summary": summary(result)}):
            JobRun.objects.filter(job=run.job).exclude(memory={}).update(memory={})
            JobRun.objects.filter(pk=run.pk).update(memory={"result": result})


def run_watched(watch: RunWatch, module: str, task: bytes, max_s: float) -> bytes | None:
    """Return the result of `python -m module`; None if the run was stopped, and its lease is released.

    Raises ChildTaskError.
    """
    try:
        return run_child(module, task, max_s=max_s, on_progress=watch.report, cancelled=watch.is_stopped)
    except ChildCancelledError:
        # Released, the next holder starts again; a lost lease stays lost.
        release(watch.lease)
        return None


class RunWatch:
    """Renews the lease of a run, and stores its progress. Everything is mutable."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self._share = 0.0
        self._renewed_s = time.monotonic()

    def report(self, share: float) -> None:
        """Remember the completed share for the next renewal."""
        self._share = share

    def is_stopped(self) -> bool:
        """Return whether the run must end, because of a shutdown, a request to cancel, or a lost lease."""
        if stop_requested.is_set():
            return True
        if time.monotonic() - self._renewed_s < RENEW_S:
            return False
        held = renew(self.lease, LEASE, progress={"done": int(self._share * 100), "of": 100})
        if held is None:
            return True
        self.lease, self._renewed_s = held, time.monotonic()
        return False
