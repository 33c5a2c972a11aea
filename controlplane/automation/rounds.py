"""One round of an automation for one pool: taken under a lease, planned, and stored atomically with its effects.

All effects of a round are database rows, written in the transaction that advances its own job run under the lease's
fencing token. A process that dies before that transaction has done nothing; one that dies after it has done everything.
Nothing is done twice. Effects outside the database are carried out afterwards, order by order
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
"""Longer than any round; a dead holder's round is repeated after it, below 15 s."""
_A_YEAR_S = 365 * 86_400.0


class LeaseLostError(RuntimeError):
    """Another process has taken over the round; nothing of it was stored."""


@dataclass(frozen=True, slots=True)
class Round:
    """A round that this thread may carry out until its lease ends."""

    pool: Pool
    lease: Lease
    memory: Mapping[str, Any]
    """The memory that the last round left."""
    at: datetime

    @property
    def now_s(self) -> float:
        """The round's moment in unix seconds."""
        return self.at.timestamp()


@dataclass(slots=True)
class RoundResult:
    """The result of a round. `effects` run in the transaction that stores it, and raise to undo all of it."""

    memory: Mapping[str, Any]
    inputs: Mapping[str, Any] = field(default_factory=dict)
    plan: Mapping[str, Any] = field(default_factory=dict)
    outcome: Mapping[str, Any] = field(default_factory=dict)
    effects: list[Callable[[], object]] = field(default_factory=list)


Work = Callable[[Round], RoundResult | None]


def run_rounds(
    job: str, every: timedelta, work: Work, *, pools: Iterable[Pool] | None = None, clock: Clock = timezone.now
) -> int:
    """Do the round of each pool that is due and free, and return how many were stored.

    A pool's rounds are `every` apart in the whole installation, however many workers wake up. A pool whose round
    fails does not hold up the others. None from `work`: there is nothing to do in this pool.
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
    """Make the pool's next rounds due now; one that is under way is not affected."""
    resting = JobRun.objects.filter(job__in=tuple(jobs), shard=pool.pk, state=JobState.ACTIVE, lease_owner="")
    resting.filter(lease_until__gt=timezone.now()).update(lease_until=timezone.now())
    wake(jobs)


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
    """Store a round and its effects; the next one starts at `due` at the earliest. Raises LeaseLostError."""
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
    """Return the memory with its moments moved back with the clock, so that no hold lasts longer.

    Moments are unix seconds as floats; no other number of a memory is near today's.
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
    """Return the shards whose round is under way or not yet due, so that no write is spent on them."""
    active = JobRun.objects.filter(held_at(now), job=job, state=JobState.ACTIVE)
    return set(active.values_list("shard", flat=True))
