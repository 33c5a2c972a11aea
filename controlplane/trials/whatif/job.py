"""The leased job that computes what-ifs, one at a time per process, with simulations in child processes."""

from __future__ import annotations

import msgspec
from celery import shared_task
from django.db import transaction

from controlplane.platform.field_problems import InvalidFieldsError
from controlplane.platform.jobs.calculation import LEASE, RunWatch, end_in_any_case
from controlplane.platform.jobs.cooperative_stop import stop_requested
from controlplane.platform.jobs.lease import Lease, finish, release, take_waiting, waiting
from controlplane.platform.jobs.one_at_a_time import one_at_a_time
from controlplane.platform.models.job_run import JobRun, JobState
from controlplane.request_log.recordings.kept_traces import RecordingGoneError
from controlplane.trials.models.whatif import WhatIf
from controlplane.trials.whatif.lifecycle import JOB, forget_whatifs
from controlplane.trials.whatif.reading import CannotRunError, plan_of
from controlplane.trials.whatif.runs import Reports, StoppedError, reports_as_json, reports_from_json, run_whatif
from routing.values.counted import count
from simulator.child_task import ChildTaskError
from simulator.workloads.trace import TraceError

_EXPECTED = (ChildTaskError, CannotRunError, RecordingGoneError, TraceError, InvalidFieldsError)


@shared_task(name="controlplane.whatif", ignore_result=True)
@one_at_a_time
def whatif() -> None:
    """Compute all waiting what-ifs, one after another, each on all free cores."""
    if not waiting(JOB).exists():
        return
    while not stop_requested.is_set() and (leases := take_waiting(JOB, LEASE)):
        end_in_any_case(leases[0], _answer, _EXPECTED)
    forget_whatifs()


def _answer(lease: Lease) -> None:
    run = JobRun.objects.get(pk=lease.run_id)
    asked = WhatIf.objects.select_related("pool", "recording", "draft", "base").filter(pk=run.shard).first()
    if asked is None or asked.result is not None:
        reason = "the what-if was deleted" if asked is None else "it already has a result"
        finish(lease, outcome={"reason": reason}, state=JobState.ABANDONED)
        return
    watch = _Watch(lease)
    try:
        result = run_whatif(plan_of(asked), reports_from_json(run.memory.get("reports", {})), on_progress=watch)
    except StoppedError:
        # Released, its finished runs are not done again by the next holder; a lost lease stays lost.
        release(watch.lease)
        return
    with transaction.atomic():
        # The end decides: a holder that lost its lease stores no result.
        if finish(watch.lease, outcome={"summary": f"{count(result.seeds, 'run')} of each policy"}):
            WhatIf.objects.filter(pk=asked.pk).update(result=msgspec.to_builtins(result))
            JobRun.objects.filter(pk=run.pk).update(memory={})


class _Watch(RunWatch):
    """Also stores finished reports during the runs. Everything is mutable."""

    _kept = 0

    def __call__(self, share: float, reports: Reports) -> bool:
        """Store the progress at intervals. Return False if the runs must end."""
        self.report(share)
        if len(reports) != self._kept:
            JobRun.objects.filter(pk=self.lease.run_id, fencing_token=self.lease.fencing_token).update(
                memory={"reports": reports_as_json(reports)}
            )
            # A lost or cancelled run ends before the next one starts.
            self._kept, self._renewed_s = len(reports), float("-inf")
        return not self.is_stopped()
