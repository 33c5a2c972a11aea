"""Leases on job runs, acquired by conditional updates of one row. A lease determines which process may act.

A holder acts only until the end of the lease that it wrote. A later process takes over the row by incrementing the
fencing token. While clocks agree, a run never has two holders at the same time. An update with an old token never
changes anything.

Cancellation is cooperative: after a request to cancel, the run's lease can no longer be renewed or acquired. Its holder
stops as if the lease were lost, and the run ends as cancelled.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from django.db import IntegrityError, models, transaction
from django.utils import timezone

from controlplane.platform.models.job_run import JobRun, JobState

Clock = Callable[[], datetime]

CANCELLED = "the run was cancelled"
_SPARE = 20
"""Additional waiting runs to try, because other processes acquire some of them."""
LONGEST = timedelta(seconds=90)
"""Maximum duration of a lease or of a pause between rounds, including clock differences between machines.

A lease that ends later was written before the clock was set back, so it counts as ended.
"""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to act for one job run until `until`. A renewal returns a new Lease."""

    run_id: int
    owner: str
    fencing_token: int
    until: datetime
    went_back: timedelta = timedelta()
    """How far the clock was set back since the run was last written, accurate to seconds; 0 if it was not."""


def this_owner() -> str:
    """Return a unique name for this thread."""
    return f"{socket.gethostname()}:{os.getpid()}:{threading.get_ident()}"


def acquire(job: str, owner: str, duration: timedelta, *, shard: int = 0, clock: Clock = timezone.now) -> Lease | None:
    """Acquire the job's active run, and start one if necessary. Return None if another process holds it."""
    # It would count as written before the clock was set back, and so as ended.
    if duration > LONGEST:
        raise ValueError(f"a lease of {duration} is too long; {LONGEST} is the most")
    now = clock()
    run = _active_run(job, shard, now)
    if run is None or is_held(run.lease_until, now):
        return None
    ahead = run.lease_until - now if run.lease_until is not None else timedelta()
    if run.cancel_requested_at is not None:
        _end_cancelled(JobRun.objects.filter(pk=run.pk, fencing_token=run.fencing_token), now)
        return None
    until = now + duration
    # The condition on the token lets only one of several processes win.
    # The end is compared, too: a late renewal by its holder keeps the token.
    taken = JobRun.objects.filter(
        pk=run.pk, state=JobState.ACTIVE, fencing_token=run.fencing_token, lease_until=run.lease_until
    ).update(lease_owner=owner, lease_until=until, fencing_token=run.fencing_token + 1)
    return Lease(run.pk, owner, run.fencing_token + 1, until, max(ahead, timedelta())) if taken else None


def waiting(job: str) -> models.QuerySet[JobRun]:
    """Return the job's runs without a holder, oldest first."""
    runs = JobRun.objects.filter(~held_at(timezone.now()), job=job, state=JobState.ACTIVE)
    return runs.order_by("started_at", "pk")


def take_waiting(job: str, duration: timedelta, most: int = 1) -> list[Lease]:
    """Acquire waiting runs, up to `most`."""
    # Other processes may take some of them first.
    shards = waiting(job).values_list("shard", flat=True)[: most + _SPARE]
    leases = (acquire(job, this_owner(), duration, shard=shard) for shard in shards)
    return list(islice((lease for lease in leases if lease is not None), most))


def is_held(lease_until: datetime | None, now: datetime) -> bool:
    """Return whether a job run with this lease has a holder or pauses until its next round."""
    return lease_until is not None and now < lease_until <= now + LONGEST


def held_at(now: datetime) -> models.Q:
    """Return the same as a condition for job runs."""
    return models.Q(lease_until__gt=now, lease_until__lte=now + LONGEST)


def renew(
    lease: Lease, duration: timedelta, *, progress: Mapping[str, Any] | None = None, clock: Clock = timezone.now
) -> Lease | None:
    """Extend the lease to `duration` from now, and store the run's progress. Return None if it is lost or cancelled.

    An expired lease can be renewed if no other process has acquired it. Its holder must not have acted since the
    expiry.
    """
    until = clock() + duration
    news = {} if progress is None else {"progress": dict(progress)}
    if _held(lease).filter(cancel_requested_at=None).update(lease_until=until, **news):
        return replace(lease, until=until)
    # The update may have failed because of a request to cancel, which ends the run here.
    _end_cancelled(_held(lease), clock())
    return None


def release(lease: Lease, *, progress: Mapping[str, Any] | None = None, clock: Clock = timezone.now) -> bool:
    """Release the run for the next holder immediately. Return False if the lease was already lost."""
    news = {} if progress is None else {"progress": dict(progress)}
    return bool(_held(lease).update(lease_until=clock(), lease_owner="", **news))


def finish(
    lease: Lease,
    *,
    outcome: Mapping[str, Any],
    state: JobState = JobState.DONE,
    clock: Clock = timezone.now,
) -> bool:
    """End the run permanently. Return False if the lease was already lost."""
    ended = _held(lease).update(state=state, outcome=dict(outcome), finished_at=clock(), lease_owner="")
    return bool(ended)


def _end_cancelled(runs: models.QuerySet[JobRun], now: datetime) -> None:
    """End the runs with a request to cancel."""
    asked = runs.filter(state=JobState.ACTIVE).exclude(cancel_requested_at=None)
    asked.update(state=JobState.CANCELLED, finished_at=now, lease_owner="", outcome={"reason": CANCELLED})


def _held(lease: Lease) -> models.QuerySet[JobRun]:
    return JobRun.objects.filter(
        pk=lease.run_id, state=JobState.ACTIVE, fencing_token=lease.fencing_token, lease_owner=lease.owner
    )


def _active_run(job: str, shard: int, now: datetime) -> JobRun | None:
    run = JobRun.objects.filter(job=job, shard=shard, state=JobState.ACTIVE).first()
    if run is not None:
        return run
    try:
        # A savepoint: the IntegrityError must not end a transaction of the caller.
        with transaction.atomic():
            last = JobRun.objects.filter(job=job, shard=shard).order_by("-fencing_token", "-pk").first()
            return JobRun.objects.create(
                job=job,
                shard=shard,
                started_at=now,
                # Tokens rise across the runs of a shard.
                fencing_token=last.fencing_token if last is not None else 0,
                memory=last.memory if last is not None else {},
            )
    except IntegrityError:
        # Another process started the run between our query and our insert; it takes it, too.
        return None
