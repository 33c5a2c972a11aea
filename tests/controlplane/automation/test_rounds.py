"""Rounds run one at a time, take effect once, and are resumed by the next process."""

from __future__ import annotations

from datetime import timedelta

import pytest

from controlplane.automation import rounds
from controlplane.automation.models.plan_record import PlanRecord
from controlplane.automation.rounds import LEASE, LeaseLostError, Round, RoundResult, run_rounds, store
from controlplane.job_runs import control as job_control
from controlplane.platform.actor import program
from controlplane.platform.jobs.lease import acquire
from controlplane.platform.models.job_run import JobRun
from tests.controlplane.automation.world import World

pytestmark = pytest.mark.django_db

EVERY = timedelta(seconds=5)


def counting(turn: Round) -> RoundResult:
    count = turn.memory.get("count", 0) + 1
    note = PlanRecord(pool=turn.pool.slug, job="count", at=turn.at, mode="act", figures={"count": count})
    return RoundResult({"count": count}, outcome={"count": count}, effects=[note.save])


def counts() -> list[int]:
    return [record.figures["count"] for record in PlanRecord.objects.order_by("pk")]


def test_rounds_of_a_pool_keep_their_interval_however_often_the_job_is_woken(world: World) -> None:
    for _ in range(3):
        run_rounds("count", EVERY, counting, clock=world.clock)
    assert counts() == [1]
    world.now += EVERY
    run_rounds("count", EVERY, counting, clock=world.clock)
    assert counts() == [1, 2]
    assert JobRun.objects.get().memory == {"count": 2}


def test_crashed_holder_stores_nothing_and_the_next_one_continues_within_15_s(world: World) -> None:
    run_rounds("count", EVERY, counting, clock=world.clock)
    world.now += EVERY
    assert acquire("count", "dead", LEASE, shard=world.pool.pk, clock=world.clock) is not None
    assert run_rounds("count", EVERY, counting, clock=world.clock) == 0
    world.now += timedelta(seconds=15) - EVERY
    assert run_rounds("count", EVERY, counting, clock=world.clock) == 1
    assert counts() == [1, 2]


def test_holder_whose_lease_expired_stores_nothing(world: World) -> None:
    lease = acquire("count", "slow", LEASE, shard=world.pool.pk, clock=world.clock)
    assert lease is not None
    slow = counting(Round(world.pool, lease, {}, world.now))
    world.now += LEASE + timedelta(seconds=1)
    run_rounds("count", EVERY, counting, clock=world.clock)
    with pytest.raises(LeaseLostError):
        store(lease, slow, world.now + EVERY)
    assert counts() == [1]


def test_effects_and_memory_are_stored_atomically(world: World) -> None:
    def broken(turn: Round) -> RoundResult:
        result = counting(turn)

        def fail() -> None:
            raise RuntimeError("a surprise in the middle")

        result.effects.append(fail)
        return result

    run_rounds("count", EVERY, counting, clock=world.clock)
    world.now += EVERY
    assert run_rounds("count", EVERY, broken, clock=world.clock) == 0
    run = JobRun.objects.get()
    assert (counts(), run.memory, run.lease_owner) == ([1], {"count": 1}, "")
    world.now += EVERY
    run_rounds("count", EVERY, counting, clock=world.clock)
    assert counts() == [1, 2]


def test_run_after_a_cancelled_one_keeps_its_memory(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_control.timezone, "now", world.clock)
    run_rounds("count", EVERY, counting, clock=world.clock)
    job_control.cancel(JobRun.objects.get(), actor=program("tests"))
    world.now += EVERY
    run_rounds("count", EVERY, counting, clock=world.clock)
    assert counts() == [1, 2]
    assert [run.state for run in JobRun.objects.order_by("pk")] == ["cancelled", "active"]


def test_failing_pool_does_not_delay_the_others(world: World) -> None:
    from controlplane.fleet.models.pool import Pool

    other = Pool.objects.create(
        slug="other", name="Other", region=world.pool.region, served_model="x", policy=world.pool.policy
    )

    def picky(turn: Round) -> RoundResult:
        if turn.pool.pk == world.pool.pk:
            raise RuntimeError("not this one")
        return counting(turn)

    assert run_rounds("count", EVERY, picky, clock=world.clock) == 1
    assert PlanRecord.objects.get().pool == other.slug
    assert "failed" in JobRun.objects.get(shard=world.pool.pk).outcome["reason"]


def test_lease_is_short_enough_to_resume_in_time() -> None:
    assert rounds.LEASE + timedelta(seconds=5) <= timedelta(seconds=15)
