"""The job that reads the demand from the request log once a quarter of an hour, in a child process."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from celery import shared_task
from django.db.models import Q

from controlplane.capacity.demand import STEP_S, LoggedDemand
from controlplane.capacity.saving import MAX_DAYS
from controlplane.platform.actor import Actor
from controlplane.platform.jobs.calculation import calculated, serve_calculations, start_calculation
from controlplane.platform.jobs.one_at_a_time import one_at_a_time
from controlplane.platform.models.job_run import JobRun, JobState
from controlplane.platform.role import Role
from controlplane.platform.roles import require
from controlplane.request_log.store.segments import recorded_span
from routing.values.counted import count
from routing.values.prepared_struct import prepared

JOB = "capacity"
STORED_AFTER_S = 60.0
"""Time after which the requests of a quarter of an hour are stored."""
MINUTES, FEWEST_MINUTES, EARLY_EVERY = 60, 3, timedelta(minutes=5)
"""Minutes that a plan by the minute covers at most and at least, and how often before the first full plan."""
FEWEST_QUARTERS = 4
"""Full quarters of an hour that a plan by the quarter hour needs. Fewer show no course of the demand."""


@shared_task(name="controlplane.capacity", ignore_result=True)
@one_at_a_time
def capacity() -> None:
    """Read the demand if a person asks, or if a plan is due by the log's length and the last run."""
    if inputs := _due(time.time()):
        start_calculation(JOB, inputs)
    serve_calculations(JOB, "controlplane.capacity.demand_child", _summary)


def start_reading(actor: Actor, *, by_minute: bool = False) -> JobRun:
    """Read the demand now; that of the last MINUTES if `by_minute`, or if the log is too short for another plan.

    Raises NotAllowedError unless the actor operates all pools, and ConflictError.
    """
    require(actor, Role.OPERATOR)
    logged = recorded_span()
    short = logged is not None and logged[1] < first_full_plan(logged[0])
    return start_calculation(JOB, {"minutes": MINUTES} if by_minute or short else {"days": MAX_DAYS})


def first_full_plan(since: float) -> float:
    """Return when a log that begins at `since` is long enough for a plan by the quarter hour (both unix seconds)."""
    return (since // STEP_S + 1 + FEWEST_QUARTERS) * STEP_S


def stored_demand() -> tuple[LoggedDemand, datetime] | None:
    """Return the newest demand and when it was read; None: none was read, or the log had no full quarter of an hour."""
    run = calculated(JOB)
    if run is None or run.finished_at is None or run.memory.get("result") is None:
        return None
    return msgspec.convert(run.memory["result"], prepared(LoggedDemand)), run.finished_at


def _due(now: float) -> dict[str, int] | None:
    """Return the inputs of the run that is due."""
    if (span := recorded_span()) is None:
        return None
    until = min(span[1], now - STORED_AFTER_S)
    full = until >= first_full_plan(span[0])
    if not full and min(span[1], now) - span[0] < 60 * FEWEST_MINUTES:
        return None
    # One attempt for each quarter of an hour, so that a failing run is not repeated all the time.
    begun = datetime.fromtimestamp(until // STEP_S * STEP_S + STORED_AFTER_S if full else now, UTC)
    begun -= timedelta() if full else EARLY_EVERY
    runs = JobRun.objects.filter(job=JOB).filter(Q(started_at__gte=begun) | Q(state=JobState.ACTIVE))
    return None if runs.exists() else {"days": MAX_DAYS} if full else {"minutes": MINUTES}


def _summary(result: Any) -> str:
    return "no full quarter of an hour yet" if result is None else f"{count(result['requests'], 'request')} read"
