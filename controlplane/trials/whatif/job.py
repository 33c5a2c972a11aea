"""The leased job that answers what-ifs, one at a time per process; its simulations run in child processes."""

from __future__ import annotations

import logging
import threading
import time
from datetime import timedelta

import msgspec
from celery import shared_task
from django.db import transaction
from django.utils import timezone

from controlplane.platform.field_problems import InvalidFieldsError
from controlplane.platform.jobs.cooperative_stop import stop_requested
from controlplane.platform.jobs.lease import Lease, acquire, finish, held_at, release, renew, this_owner
from controlplane.platform.models.job_run import JobRun, JobState
from controlplane.request_log.recordings.kept_traces import RecordingGoneError
from controlplane.trials.models.whatif import WhatIf
from controlplane.trials.whatif.lifecycle import JOB, forget_whatifs
from controlplane.trials.whatif.reading import CannotRunError, plan_of
from controlplane.trials.whatif.runs import Reports, StoppedError, carry_out, reports_as_json, reports_from_json
from routing.values.counted import count
from simulator.runs.whatif import WhatIfError
from simulator.workloads.trace import TraceError

logger = logging.getLogger(__name__)

LEASE = timedelta(seconds=20)
RENEW_S = 2.0

# Simulations take every core that is free; a second wake-up would only take a thread away from other jobs.
_working = threading.Lock()


@shared_task(name="controlplane.whatif", ignore_result=True)
def whatif() -> None:
    """Answer all what-ifs that wait; return at once where none does or they are being answered."""
    if not _waiting() or not _working.acquire(blocking=False):
        return
    try:
        while not stop_requested.is_set() and (lease := _take()) is not None:
            _serve(lease)
        forget_whatifs()
    finally:
        _working.release()


def _waiting() -> list[int]:
    runs = JobRun.objects.filter(~held_at(timezone.now()), job=JOB, state=JobState.ACTIVE)
    return list(runs.order_by("started_at", "pk").values_list("shard", flat=True)[:20])


def _take() -> Lease | None:
    leases = (acquire(JOB, this_owner(), LEASE, shard=shard) for shard in _waiting())
    return next((lease for lease in leases if lease is not None), None)


def _serve(lease: Lease) -> None:
    """Answer one what-if, and end its run whatever happens: repeated for ever it would break off for ever."""
    try:
        _answer(lease)
    except (WhatIfError, CannotRunError, RecordingGoneError, TraceError, InvalidFieldsError) as error:
        finish(lease, outcome={"reason": str(error)}, state=JobState.FAILED)
    except Exception as error:
        # The edge of the job.
        logger.exception("a what-if failed")
        finish(lease, outcome={"reason": f"the what-if itself failed ({type(error).__name__})"}, state=JobState.FAILED)


def _answer(lease: Lease) -> None:
    run = JobRun.objects.get(pk=lease.run_id)
    asked = WhatIf.objects.select_related("pool", "recording", "draft", "base").filter(pk=run.shard).first()
    if asked is None or asked.result is not None:
        reason = "the what-if was deleted" if asked is None else "it already has a result"
        finish(lease, outcome={"reason": reason}, state=JobState.ABANDONED)
        return
    watch = _Watch(lease)
    try:
        result = carry_out(plan_of(asked), reports_from_json(run.memory.get("reports", {})), on_look=watch)
    except StoppedError:
        # Given back, the runs that are done are not done again by whoever takes it; a lost lease stays lost.
        release(watch.lease)
        return
    with transaction.atomic():
        if finish(watch.lease, outcome={"summary": f"{count(result.seeds, 'run')} of each policy"}):
            WhatIf.objects.filter(pk=asked.pk).update(result=msgspec.to_builtins(result))
            JobRun.objects.filter(pk=run.pk).update(memory={})


class _Watch:
    """Keeps the lease and what is done while the runs go on. Mutable: all of it."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self._kept = 0
        self._renewed_s = time.monotonic()

    def __call__(self, share: float, reports: Reports) -> bool:
        """Store the progress now and then; False once the runs are to end."""
        if stop_requested.is_set():
            return False
        if len(reports) == self._kept and time.monotonic() - self._renewed_s < RENEW_S:
            return True
        held = renew(self.lease, LEASE, progress={"done": int(share * 100), "of": 100})
        if held is None:
            return False
        if len(reports) != self._kept:
            JobRun.objects.filter(pk=held.run_id, fencing_token=held.fencing_token).update(
                memory={"reports": reports_as_json(reports)}
            )
        self.lease, self._kept, self._renewed_s = held, len(reports), time.monotonic()
        return True
