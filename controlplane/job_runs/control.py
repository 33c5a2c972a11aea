"""Cancels and retries job runs for operators. Leases (platform.jobs.lease) decide which run starts when."""

from __future__ import annotations

from typing import Any

from django.db import IntegrityError, models, transaction
from django.utils import timezone

from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool
from controlplane.fleet.preflight.lifecycle import JOB as PREFLIGHT
from controlplane.platform import audit
from controlplane.platform.actor import Actor
from controlplane.platform.conflict import ConflictError
from controlplane.platform.jobs.wake import wake
from controlplane.platform.models.job_run import JobRun, JobState
from controlplane.platform.role import Role
from controlplane.platform.roles import require
from controlplane.trials.models.whatif import WhatIf
from controlplane.trials.whatif.lifecycle import JOB as WHATIF

OF_POOLS = frozenset(
    {
        "engine_health", "rebalance", "scaling", "prefill_decode", "engine_actions", "holdback", "advice",
        "advice_autopilot", "savings",
    }
)  # fmt: skip
"""Jobs whose shard is the row of the pool that they manage."""


class JobControlError(ConflictError):
    """The run's state does not allow cancellation or a retry. The message explains the reason and the fix."""


def cancel(run: JobRun, *, actor: Actor, why: str = "") -> JobRun:
    """Request the end of the run and return it in its new state. Its holder notices at its next lease renewal.

    A run without a holder ends immediately, and a second request changes nothing. Raises NotAllowedError unless the
    actor is an operator of the run's pool (of all pools if the run has none), and JobControlError if the run has ended.
    """
    require(actor, Role.OPERATOR, pool_of(run))
    now = timezone.now()
    with transaction.atomic():
        stored = JobRun.objects.select_for_update().get(pk=run.pk)
        if stored.state != JobState.ACTIVE:
            raise JobControlError(f"Run {run.pk} has already ended ({stored.state}).")
        if stored.cancel_requested_at is not None:
            return stored
        before = _audit_fields(stored)
        asked = {"cancel_requested_at": now, "cancel_requested_by": actor.name}
        if not _has_holder(stored):
            asked |= {
                "state": JobState.CANCELLED,
                "finished_at": now,
                "lease_owner": "",
                "outcome": {"reason": "the run was cancelled while it waited"},
            }
        # The holder may have finished it meanwhile: then there is nothing left to cancel.
        unchanged = {"state": JobState.ACTIVE, "fencing_token": stored.fencing_token, "lease_owner": stored.lease_owner}
        if not JobRun.objects.filter(pk=run.pk, **unchanged).update(**asked):
            raise JobControlError(f"Run {run.pk} just changed; reload it.")
        stored.refresh_from_db()
        _record(actor, "job.cancel", stored, before=before, why=why)
    return stored


def retry(run: JobRun, *, actor: Actor, why: str = "") -> JobRun:
    """Store a new run with the inputs of an ended run, wake its job, and return the new run.

    Raises NotAllowedError, and JobControlError if a run of the same job and shard is active.
    """
    require(actor, Role.OPERATOR, pool_of(run))
    now = timezone.now()
    runs = JobRun.objects.filter(job=run.job, shard=run.shard)
    try:
        with transaction.atomic():
            _reject_while_active(runs)
            last = runs.aggregate(token=models.Max("fencing_token"))["token"] or 0
            # The lease has run out already, so that the next search for work takes the run.
            again = JobRun.objects.create(
                job=run.job,
                shard=run.shard,
                inputs=run.inputs,
                memory=run.memory,
                retry_of=run,
                fencing_token=last + 1,
                lease_until=now,
                started_at=now,
            )
            wake([run.job])
            _record(actor, "job.retry", again, before=None, why=why)
    except IntegrityError as error:
        raise JobControlError("Another run of this job was just started; use that one.") from error
    return again


def pool_of(run: JobRun) -> Pool | None:
    """Return the pool of the run; None: the whole installation."""
    if run.job in OF_POOLS:
        return Pool.objects.filter(pk=run.shard).first()
    if run.job == WHATIF:
        whatif = WhatIf.objects.select_related("pool").filter(pk=run.shard).first()
        return whatif.pool if whatif else None
    if run.job != PREFLIGHT:
        return None
    engine = Engine.objects.select_related("pool").filter(pk=run.shard).first()
    return engine.pool if engine else None


def _has_holder(run: JobRun) -> bool:
    return bool(run.lease_owner) and run.lease_until is not None and run.lease_until > timezone.now()


def _reject_while_active(runs: models.QuerySet[JobRun]) -> None:
    active = runs.filter(state=JobState.ACTIVE).first()
    if active is not None:
        raise JobControlError(f"Run {active.pk} of the same job is active; cancel it first, or wait until it ends.")


def _audit_fields(run: JobRun) -> dict[str, Any]:
    return {
        "job": run.job,
        "shard": run.shard,
        "state": run.state,
        "inputs": run.inputs,
        "retry_of": run.retry_of_id,
        "cancel_requested_by": run.cancel_requested_by,
    }


def _record(actor: Actor, verb: str, run: JobRun, *, before: dict[str, Any] | None, why: str) -> None:
    pool = pool_of(run)
    audit.record_for(actor, verb, run, before=before, after=_audit_fields(run), why=why, pool=pool.slug if pool else "")
