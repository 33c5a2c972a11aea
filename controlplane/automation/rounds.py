"""Runs one round of an automation for one pool: acquires a lease, plans, and stores the plan and effects atomically.

All effects of a round are database rows, written in the transaction that advances its own job run under the lease's
fencing token. If a process dies before that transaction, nothing is done; if it dies afterwards, everything is done.
Nothing is done twice. Effects outside the database are carried out later, one action at a time
(controlplane.automation.jobs.engine_actions).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import DatabaseError, transaction
from django.utils import timezone

from controlplane.fleet.models.pool import Pool
from controlplane.platform.jobs.lease import Clock, Lease, acquire, held_at, this_owner
from controlplane.platform.jobs.wake import wake
from controlplane.platform.models.job_run import JobRun, JobState

logger = logging.getLogger(__name__)

LEASE = timedelta(seconds=8)
"""Longer than any round. If the lease holder dies, the round is repeated after this time, within 15 s."""
_A_YEAR_S = 365 * 86_400.0


class LeaseLostError(RuntimeError):
    """Another process has taken over the round. Nothing from this round was stored."""


@dataclass(frozen=True, slots=True)
class Round:
    """A round that this thread may run until its lease ends."""

    pool: Pool
    lease: Lease
    memory: Mapping[str, Any]
    """The memory stored by the last round."""
    at: datetime

    @property
    def now_s(self) -> float:
        """Return the time of the round in unix seconds."""
        return self.at.timestamp()


@dataclass(slots=True)
class RoundResult:
    """The result of a round. `effects` run in the transaction that stores it, and roll it back if they raise."""

    memory: Mapping[str, Any]
    inputs: Mapping[str, Any] = field(default_factory=dict)
    plan: Mapping[str, Any] = field(default_factory=dict)
    outcome: Mapping[str, Any] = field(default_factory=dict)
    effects: list[Callable[[], object]] = field(default_factory=list)


Work = Callable[[Round], RoundResult | None]


def run_rounds(
    job: str, every: timedelta, work: Work, *, pools: Iterable[Pool] | None = None, clock: Clock = timezone.now
) -> int:
    """Run the round of each pool that is due and not leased. Return how many rounds were stored.

    A pool's rounds are `every` apart in the whole installation, regardless of the number of workers. A failing round
    does not delay other pools. `work` returns None if the pool needs no round.
    """
    candidates = Pool.objects.select_related("policy__live_version", "automation", "region") if pools is None else pools
    # One read instead of a conditional write per pool.
    waiting = _waiting(job, clock())
    stored = 0
    for pool in candidates:
        if pool.pk in waiting:
            continue
        lease = acquire(job, this_owner(), LEASE, shard=pool.pk, clock=clock)
        if lease is not None:
            stored += _round(job, lease, pool, every, work, clock)
    return stored


def bring_forward(pool: Pool, jobs: Collection[str]) -> None:
    """Make the pool's next rounds due now. A running round is not affected."""
    make_due([pool.slug], jobs)
    wake(jobs)


def make_due(slugs: Collection[str], jobs: Collection[str]) -> None:
    """Make the next rounds of these pools due now, for the caller to run."""
    shards = Pool.objects.filter(slug__in=slugs).values("pk")
    resting = JobRun.objects.filter(job__in=tuple(jobs), shard__in=shards, state=JobState.ACTIVE, lease_owner="")
    resting.filter(lease_until__gt=timezone.now()).update(lease_until=timezone.now())


def _round(job: str, lease: Lease, pool: Pool, every: timedelta, work: Work, clock: Clock) -> bool:
    at = clock()
    # Read under the lease: its last holder may have stored a round until then.
    memory = JobRun.objects.values_list("memory", flat=True).get(pk=lease.run_id)
    try:
        memory = moved_back(memory, lease.went_back, at)
        result = work(Round(pool, lease, memory, at)) or RoundResult(memory)
        store(lease, result, at + every)
    except LeaseLostError:
        logger.warning("another holder took the round", extra={"job": job, "pool": pool.slug})
        return False
    # The job ends with it: without the database no other round can be stored.
    except DatabaseError:
        raise
    except Exception:
        # The edge of one pool's round: the rounds of other pools must not stop with it.
        logger.exception("a round failed; the next one continues from the stored state", extra={"job": job})
        # A failing round is not repeated each second.
        _rest(lease, {"reason": "the last round failed; see the log"}, at + max(every, timedelta(seconds=5)))
        return False
    return True


def store(lease: Lease, result: RoundResult, due: datetime) -> None:
    """Store a round and its effects. The next round starts at `due` at the earliest. Raises LeaseLostError."""
    with transaction.atomic():
        held = JobRun.objects.select_for_update().filter(
            pk=lease.run_id,
            state=JobState.ACTIVE,
            fencing_token=lease.fencing_token,
            lease_owner=lease.owner,
            cancel_requested_at=None,
        )
        moved = held.update(
            memory=dict(result.memory),
            inputs=dict(result.inputs),
            plan=dict(result.plan),
            outcome=dict(result.outcome),
            # An end without an owner: the run rests, and no worker takes it before it is due.
            lease_until=due,
            lease_owner="",
        )
        # Effects run only under the lease: a lost one rolls the transaction back.
        if not moved:
            raise LeaseLostError
        for effect in result.effects:
            effect()


def moved_back(memory: Mapping[str, Any], by: timedelta, now: datetime) -> dict[str, Any]:
    """Return the memory with its timestamps moved back with the clock, so that holds do not last longer.

    Timestamps are recognized as floats near the current unix time; no other number of a memory is that large.
    """
    if not by:
        return dict(memory)
    by_s, now_s = by.total_seconds(), now.timestamp()

    def move(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: move(member) for key, member in value.items()}
        if isinstance(value, list):
            return [move(item) for item in value]
        if isinstance(value, float) and abs(value - now_s) < _A_YEAR_S:
            return value - by_s
        return value

    moved: dict[str, Any] = move(dict(memory))
    return moved


def _rest(lease: Lease, outcome: Mapping[str, Any], until: datetime) -> None:
    JobRun.objects.filter(pk=lease.run_id, state=JobState.ACTIVE, fencing_token=lease.fencing_token).update(
        outcome=dict(outcome), lease_until=until, lease_owner=""
    )


def _waiting(job: str, now: datetime) -> set[int]:
    """Return the shards whose round is running or not yet due, to avoid useless writes."""
    active = JobRun.objects.filter(held_at(now), job=job, state=JobState.ACTIVE)
    return set(active.values_list("shard", flat=True))
