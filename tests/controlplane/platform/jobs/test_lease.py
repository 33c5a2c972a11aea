"""Two holders never act at the same time, whatever the order of events."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from controlplane.platform.jobs import lease as lease_module
from controlplane.platform.jobs.lease import Lease, acquire, finish, release, renew
from controlplane.platform.models.job_run import JobRun

START = datetime(2030, 1, 1, tzinfo=UTC)
TERM = timedelta(seconds=3)


@dataclass
class FakeClock:
    now: datetime = START

    def __call__(self) -> datetime:
        return self.now


@dataclass
class Worker:
    """Holds the last lease that it acquired, as a real process does."""

    name: str
    lease: Lease | None = None
    tokens: list[int] = field(default_factory=list)

    def believes(self, now: datetime) -> bool:
        return self.lease is not None and now < self.lease.until


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["acquire", "renew", "release", "finish", "forget", "wait"]),
        st.integers(0, 2),
        st.sampled_from([0, 1, 2, 3, 4]),
    ),
    max_size=40,
)


def play(worker: Worker, step: str, clock: FakeClock) -> None:
    if step == "acquire":
        lease = acquire("probe", worker.name, TERM, clock=clock)
        if lease is not None:
            worker.lease = lease
            worker.tokens.append(lease.fencing_token)
    elif worker.lease is not None and step in ("renew", "release", "finish"):
        if step == "renew":
            worker.lease = renew(worker.lease, TERM, clock=clock)
        elif step == "release":
            release(worker.lease, clock=clock)
            worker.lease = None
        else:
            finish(worker.lease, outcome={}, clock=clock)
            worker.lease = None
    elif step == "forget":
        worker.lease = None  # the holder dies silently


class NeverTwoHolders(TestCase):
    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(STEPS)
    def test_two_holders_never_overlap_and_tokens_only_rise(self, steps: list[tuple[str, int, int]]) -> None:
        clock = FakeClock()
        workers = [Worker(name) for name in "abc"]
        tokens: list[int] = []
        for step, which, seconds in steps:
            if step == "wait":
                clock.now += timedelta(seconds=seconds)
            else:
                had = len(workers[which].tokens)
                play(workers[which], step, clock)
                tokens += workers[which].tokens[had:]
            assert sum(worker.believes(clock.now) for worker in workers) <= 1
        assert tokens == sorted(set(tokens))

    def test_expired_lease_goes_to_the_next_requester(self) -> None:
        clock = FakeClock()
        first = acquire("probe", "a", TERM, clock=clock)
        assert acquire("probe", "b", TERM, clock=clock) is None
        clock.now += TERM
        second = acquire("probe", "b", TERM, clock=clock)
        assert first is not None
        assert second is not None
        assert second.run_id == first.run_id
        assert second.fencing_token == first.fencing_token + 1

    def test_old_token_changes_nothing(self) -> None:
        clock = FakeClock()
        first = acquire("probe", "a", TERM, clock=clock)
        clock.now += TERM
        second = acquire("probe", "b", TERM, clock=clock)
        assert first is not None
        assert renew(first, TERM, progress={"by": "a"}, clock=clock) is None
        assert not release(first, clock=clock)
        assert not finish(first, outcome={}, clock=clock)
        run = JobRun.objects.get()
        assert second is not None
        assert (run.state, run.lease_owner, run.fencing_token) == ("active", "b", second.fencing_token)
        assert run.progress == {}

    def test_released_lease_is_free_at_once(self) -> None:
        clock = FakeClock()
        first = acquire("probe", "a", TERM, clock=clock)
        assert first is not None
        assert release(first, clock=clock)
        assert acquire("probe", "b", TERM, clock=clock) is not None

    def test_run_after_a_finished_one_has_a_higher_token(self) -> None:
        clock = FakeClock()
        first = acquire("probe", "a", TERM, clock=clock)
        assert first is not None
        assert finish(first, outcome={"ok": 1}, clock=clock)
        second = acquire("probe", "a", TERM, clock=clock)
        assert second is not None
        assert second.run_id != first.run_id
        assert second.fencing_token > first.fencing_token

    def test_shards_and_jobs_have_separate_leases(self) -> None:
        clock = FakeClock()
        for job, shard in (("probe", 0), ("probe", 1), ("other", 0)):
            assert acquire(job, "a", TERM, shard=shard, clock=clock) is not None


@pytest.mark.django_db
def test_one_of_two_readers_of_the_same_run_gets_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, read = FakeClock(), lease_module._active_run
    between: list[Lease | None] = []

    def read_and_be_overtaken(job: str, shard: int, now: datetime) -> JobRun | None:
        run = read(job, shard, now)
        monkeypatch.setattr(lease_module, "_active_run", read)
        between.append(acquire("probe", "b", TERM, clock=clock))
        return run

    monkeypatch.setattr(lease_module, "_active_run", read_and_be_overtaken)
    assert acquire("probe", "a", TERM, clock=clock) is None
    assert between[0] is not None
    assert JobRun.objects.get().lease_owner == "b"


@pytest.mark.django_db(transaction=True)
def test_one_of_many_simultaneous_threads_gets_the_lease() -> None:
    barrier = threading.Barrier(8)
    got: list[Lease] = []

    def ask(name: str) -> None:
        barrier.wait()
        lease = acquire("probe", name, timedelta(minutes=1))
        if lease is not None:
            got.append(lease)
        connection.close()

    threads = [threading.Thread(target=ask, args=(str(number),)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 1
    assert JobRun.objects.get().lease_owner == got[0].owner
