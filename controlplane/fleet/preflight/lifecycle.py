"""Requests preflights of engines and reads their state. The job controlplane.fleet.preflight.job runs them.

A preflight is a job run whose shard is the engine's row. Therefore each engine has one at a time, and it survives
reloads and restarts. An engine that is registered here gets no work before it has passed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import models, transaction
from django.utils import timezone

from controlplane.fleet.engine_lifecycle import set_desired_state
from controlplane.fleet.engine_registration import register_engine
from controlplane.fleet.models.engine import DesiredState, Engine
from controlplane.fleet.models.pool import Pool
from controlplane.fleet.preflight.steps import (
    FAILED,
    PENDING,
    Step,
    failed_step,
    fresh_steps,
    from_progress,
    to_progress,
)
from controlplane.platform.actor import Actor
from controlplane.platform.jobs.wake import wake
from controlplane.platform.models.job_run import JobRun, JobState
from controlplane.platform.role import Role
from controlplane.platform.roles import require

JOB = "preflight"


@dataclass(frozen=True, slots=True)
class Preflight:
    """State of an engine's newest preflight."""

    run_id: int
    state: str
    """waiting, running, passed, failed, or ended (without a result)."""
    steps: tuple[Step, ...]
    started_at: datetime
    finished_at: datetime | None
    remark: str
    """The consequence of the result, or the reason for an early end."""
    then_ready: bool
    """Whether the engine becomes ready after it has passed."""

    @property
    def unfinished(self) -> bool:
        """Return whether the preflight waits or runs."""
        return self.state in ("waiting", "running")

    @property
    def failure(self) -> Step | None:
        """Return the failed step; None without one."""
        return failed_step(self.steps)

    @property
    def stopped_at(self) -> int:
        """Return the number of the failed step, from 1; 0 without one."""
        return next((number for number, step in enumerate(self.steps, start=1) if step.state == FAILED), 0)


def start_preflight(engine: Engine, *, actor: Actor, then_ready: bool = False) -> JobRun:
    """Start a preflight of the engine, and end a running one. Raises NotAllowedError."""
    require(actor, Role.OPERATOR, engine.pool)
    now = timezone.now()
    runs = JobRun.objects.filter(job=JOB, shard=engine.pk)
    with transaction.atomic():
        # First: an engine has one active run (job_run_active_once).
        runs.filter(state=JobState.ACTIVE).update(
            state=JobState.ABANDONED,
            finished_at=now,
            lease_owner="",
            outcome={"result": "ended", "reason": "a newer preflight of this engine was requested"},
        )
        last = runs.aggregate(token=models.Max("fencing_token"))["token"] or 0
        wake([JOB])
        return JobRun.objects.create(
            job=JOB,
            shard=engine.pk,
            inputs=_inputs(engine, actor, then_ready=then_ready),
            progress=to_progress(fresh_steps()),
            # A lease that has run out already: the next search for work takes the run.
            lease_until=now,
            fencing_token=last + 1,
            started_at=now,
        )


def register_for_preflight(
    pool: Pool, name: str, url: str, *, actor: Actor, then_ready: bool = True, why: str = "", **fields: Any
) -> Engine:
    """Register an engine and start its preflight. The engine gets no work until it has passed.

    `fields` are the further arguments of register_engine. Raises the same errors.
    """
    with transaction.atomic():
        engine = register_engine(pool, name, url, actor=actor, why=why, **fields)
        set_desired_state(engine, DesiredState.MAINTENANCE, actor=actor, why="set to serve after its preflight")
        start_preflight(engine, actor=actor, then_ready=then_ready)
    return engine


def preflight_of(engine: Engine) -> Preflight | None:
    """Return the engine's newest preflight; None without one."""
    run = JobRun.objects.filter(job=JOB, shard=engine.pk).order_by("-pk").first()
    return None if run is None else as_preflight(run)


def failed_engines(engine_pks: Iterable[int]) -> dict[int, Preflight]:
    """Return the newest preflights of these engines that did not pass, by engine row."""
    newest = models.Subquery(
        JobRun.objects.filter(job=JOB, shard=models.OuterRef("shard")).order_by("-pk").values("pk")[:1]
    )
    runs = JobRun.objects.filter(job=JOB, shard__in=list(engine_pks), pk=newest).exclude(state=JobState.DONE)
    return {run.shard: as_preflight(run) for run in runs}


def as_preflight(run: JobRun) -> Preflight:
    """Return a job run as a preflight."""
    steps = from_progress(run.progress)
    outcome = run.outcome if isinstance(run.outcome, dict) else {}
    return Preflight(
        run_id=run.pk,
        state=_state(run, steps),
        steps=steps,
        started_at=run.started_at,
        finished_at=run.finished_at,
        remark=str(outcome.get("remark") or outcome.get("reason") or ""),
        then_ready=bool(run.inputs.get("then_ready")),
    )


def _state(run: JobRun, steps: tuple[Step, ...]) -> str:
    if run.state == JobState.DONE:
        return "passed"
    if run.state == JobState.ACTIVE:
        untouched = all(step.state == PENDING for step in steps) and not run.lease_owner
        return "waiting" if untouched else "running"
    return "failed" if failed_step(steps) else "ended"


def _inputs(engine: Engine, actor: Actor, *, then_ready: bool) -> dict[str, Any]:
    return {
        "engine_id": engine.engine_id,
        "engine": engine.name,
        "pool": engine.pool.slug,
        "url": engine.url,
        "then_ready": then_ready,
        "by": actor.name,
        "user": actor.user.pk if actor.user else None,
        "via": actor.via,
        "request_id": actor.request_id,
    }
