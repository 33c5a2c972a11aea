"""The leased job that replays each pool's day once it has ended, one at a time, in a child process."""

from __future__ import annotations

from datetime import date, datetime, timedelta

import msgspec
from celery import shared_task
from django.conf import settings
from django.db import transaction
from django.db.models import Sum
from django.utils import timezone

from controlplane.fleet.models.pool import Pool
from controlplane.platform import audit
from controlplane.platform.actor import Actor
from controlplane.platform.field_problems import problem
from controlplane.platform.jobs.calculation import LEASE, RunWatch, end_in_any_case, run_watched, start_calculation
from controlplane.platform.jobs.cooperative_stop import stop_requested
from controlplane.platform.jobs.lease import Lease, finish, take_waiting
from controlplane.platform.jobs.one_at_a_time import one_at_a_time
from controlplane.platform.models.job_run import JobRun, JobState
from controlplane.platform.role import Role
from controlplane.platform.roles import require
from controlplane.savings.day_task import day_begin, day_task
from controlplane.savings.models.savings_rows import JOB, Saving, SavingsDay, SavingsState
from controlplane.savings.reading import STORED_AFTER
from controlplane.savings.replay_child import DayResult
from controlplane.trials.models.holdback import HoldbackDay
from controlplane.trials.whatif.reading import CannotRunError
from controlplane.usage.models.usage_rows import EngineDay
from planning.savings.day_savings import ArmRun, RangedFigure, day_savings, holdback_check
from planning.savings.day_windows import LEAST_WINDOWS
from routing.values.prepared_struct import prepared
from simulator.child_task import ChildTaskError

MAX_S = 4 * 3600.0


@shared_task(name="controlplane.savings", ignore_result=True)
@one_at_a_time
def savings() -> None:
    """Start the replays of yesterday that are due, and do all that wait."""
    if settings.SAVINGS_CPU_S:
        start_due(timezone.now())
    while not stop_requested.is_set() and (leases := take_waiting(JOB, LEASE)):
        end_in_any_case(leases[0], _replay, (ChildTaskError, CannotRunError))


def start_due(now: datetime) -> int:
    """Start the replay of yesterday for each pool without one, once per pool. Return how many were started."""
    day = (now - STORED_AFTER).date() - timedelta(days=1)
    known = set(SavingsDay.objects.filter(day=day, computed_at__gte=day_begin(day, 1)).values_list("pool", flat=True))
    tried = JobRun.objects.filter(job=JOB, started_at__gte=day_begin(day, 1), inputs__day=day.isoformat())
    tried |= JobRun.objects.filter(job=JOB, state=JobState.ACTIVE)
    due = Pool.objects.exclude(slug__in=known).exclude(pk__in=list(tried.values_list("shard", flat=True)))
    for pool in due:
        start_calculation(JOB, {"pool": pool.slug, "day": day.isoformat()}, shard=pool.pk)
    return len(due)


def start_replay(pool: Pool, day: date, *, actor: Actor, why: str = "") -> JobRun:
    """Replay a pool's day now; today's is replayed up to now. An earlier result is replaced.

    Raises NotAllowedError unless the actor operates the pool, InvalidFieldsError, and ConflictError while one runs.
    """
    require(actor, Role.OPERATOR, pool)
    if day > timezone.now().date():
        raise problem("day", "Has not begun yet.")
    if not settings.SAVINGS_CPU_S:
        raise problem("day", "Replays are off (HEADWAY_SAVINGS_CPU_S is 0).")
    inputs = {"pool": pool.slug, "day": day.isoformat()}
    with transaction.atomic():
        run = start_calculation(JOB, inputs, shard=pool.pk)
        audit.record_for(actor, "savings.replay", pool, after=inputs, why=why)
    return run


def _replay(lease: Lease) -> None:
    run = JobRun.objects.get(pk=lease.run_id)
    pool = Pool.objects.select_related("policy__live_version").filter(pk=run.shard).first()
    if pool is None:
        finish(lease, outcome={"reason": "the pool was deleted"}, state=JobState.ABANDONED)
        return
    day, watch = date.fromisoformat(run.inputs["day"]), RunWatch(lease)
    task = msgspec.json.encode(day_task(pool, day))
    encoded = run_watched(watch, "controlplane.savings.replay_child", task, MAX_S)
    if encoded is None:
        return
    result = msgspec.json.decode(encoded, type=prepared(DayResult))
    with transaction.atomic():
        # The end decides: a holder that lost its lease stores no result.
        stored = SavingsDay(day=day, pool=pool.slug)
        if finish(watch.lease, outcome={"summary": f"{pool.slug} on {day}"}):
            store(stored, result)


def store(row: SavingsDay, result: DayResult) -> None:
    """Replace what is stored of the day by the result."""
    runs = result.replay.runs if result.replay is not None else ()
    SavingsDay.objects.filter(day=row.day, pool=row.pool).delete()
    row.computed_at, row.requests, row.windows = timezone.now(), result.requests, len(runs)
    if len(runs) < LEAST_WINDOWS:
        few = SavingsState.CUT_SHORT if result.windows >= LEAST_WINDOWS else SavingsState.TOO_FEW
        row.state = few if result.requests else SavingsState.NOT_RECORDED
        row.save()
        return
    weight = sum(run.window.requests for run in runs)
    row.state, row.hours = SavingsState.REPLAYED, sum(run.window.hours for run in runs)
    row.versions, row.recorded_late = list(result.versions), result.recorded_late
    row.replayed_late = sum(run.live.late * run.window.requests for run in runs) / weight
    row.cpu_s = result.replay.cpu_s if result.replay is not None else 0.0
    price = EngineDay.objects.filter(day=row.day, pool=row.pool).aggregate(cost=Sum("cost"), priced_s=Sum("priced_s"))
    row.price_per_h = price["cost"] / price["priced_s"] * 3600 if price["priced_s"] else None
    if held := HoldbackDay.objects.filter(pool=row.pool, day=row.day).order_by("-control").first():
        measured = ArmRun(held.control, held.control_late, held.live, held.live_late)
        check = holdback_check(runs, held.placement, measured)
        row.holdback = msgspec.to_builtins(check) if check is not None else {}
    row.save()
    Saving.objects.bulk_create(
        Saving(
            of_day=row,
            alternative=item.alternative,
            tenant=item.tenant[:64],
            capped=item.capped,
            **_columns("late", item.late),
            **_columns("engine_h", item.engine_h),
        )
        for item in day_savings(runs)
    )


def _columns(name: str, value: RangedFigure) -> dict[str, float]:
    return {name: value.mid, f"{name}_low": value.low, f"{name}_high": value.high}
