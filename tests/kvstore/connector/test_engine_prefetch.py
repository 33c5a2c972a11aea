"""Prefetches into engine memory: what may be taken, who goes first, and that no request waits for a prefetch's memory.

The scheduler side alone first, then with two workers' reports, then with a worker and a real node.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import pytest

from kvstore.connector.engine_params import KvOutcome, outcome_in
from kvstore.connector.engine_prefetch import NamedBlock
from kvstore.connector.node_lookup import NodeLookup
from kvstore.connector.scheduler_side import SchedulerSide
from kvstore.connector.step_messages import LoadEnd, LoadJob, StepJobs, StepReport
from tests.kvstore.connector.engine_blocks import PAYLOAD, TOKENS, Memory, Request, chain, progress, request, settings
from tests.kvstore.connector.test_node_lookup import lookup
from tests.kvstore.connector.test_worker_side import saves, store, worker
from tests.kvstore.kv_blocks import address, node
from tests.patience import wait_until


class Pool:
    """An engine's blocks. Mutable: cached hash → block, free blocks in order of eviction."""

    def __init__(self, blocks: int = 40) -> None:
        self.blocks, self.cached = blocks, dict[bytes, int]()
        self.order = list(range(blocks))
        self.named: dict[bytes, int] = {}

    def free(self) -> int:
        return len(self.order)

    def holds(self, chain_hash: bytes) -> bool:
        return chain_hash in self.cached

    def take(self, blocks: int) -> list[int]:
        taken, self.order = self.order[:blocks], self.order[blocks:]
        self.cached = {name: block for name, block in self.cached.items() if block not in taken}
        assert len(taken) == blocks
        return taken

    def give_back(self, block_ids: Sequence[int], named: Sequence[NamedBlock]) -> None:
        for block, (name, key, _) in zip(block_ids, named, strict=False):
            self.cached[name], self.named[name] = block, key
        self.order += reversed(block_ids)

    def drop(self, chain_hashes: Iterable[bytes]) -> None:
        for name in chain_hashes:
            del self.cached[name]


class Names:
    """The node's answers: every block of a prompt, after the first question."""

    def __init__(self, blocks: int = 100) -> None:
        self.blocks, self.asked = blocks, set[str]()

    def chain(self, request_id: str, domain: object, routing_keys: Sequence[int], now: float) -> list[bytes] | None:
        if request_id not in self.asked:
            self.asked.add(request_id)
            return None
        return chain(prompt_of(request_id), min(len(routing_keys), self.blocks))

    def forget(self, request_id: str) -> None:
        self.asked.discard(request_id)


def prompt_of(request_id: str) -> str:
    return request_id.partition("/")[0]


def side(pool: Pool, *, share: float = 0.25, workers: int = 1, names: Names | None = None) -> SchedulerSide:
    made = SchedulerSide(settings(prefetch_share=share), TOKENS, workers=workers)
    made.payload_bytes, made.prefetch.memory, made.names = PAYLOAD, pool, names or Names()
    return made


def carrier(name: str, blocks: int, rank: int = 1) -> Request:
    """Return the request of one token that carries a prefetch of this many blocks."""
    made = request(name, blocks=blocks, load_blocks=blocks, prefetch_rank=rank, holders=[])
    made.num_prompt_tokens, made.block_hashes = 1, []
    return made


def begun(scheduler: SchedulerSide, name: str, blocks: int, rank: int = 1) -> tuple[Request, LoadJob | None]:
    """Return a carrier and its load, None if it has nothing to wait for."""
    asked = carrier(name, blocks, rank)
    scheduler.add(asked, "")
    assert scheduler.matched(asked, 0, 0.0) is None, "the node's answer is pending"
    waits = scheduler.matched(asked, 0, 0.0) is None
    jobs = scheduler.step([], 0, 0.0).loads
    assert len(jobs) == waits
    return asked, jobs[0] if jobs else None


def end(scheduler: SchedulerSide, job: LoadJob, blocks: int | None = None, workers: int = 1) -> None:
    loaded = len(job.block_ids) if blocks is None else blocks
    outcome = KvOutcome(loaded_blocks=loaded, loaded_bytes=loaded * PAYLOAD)
    ends = (LoadEnd(request_id=job.request_id, outcome=outcome, prefetch=True, workers=workers),)
    scheduler.report(StepReport(ends=ends), 0.0)


def outcome(scheduler: SchedulerSide, asked: Request) -> KvOutcome:
    assert scheduler.matched(asked, 0, 0.0) == 0, "its own token is computed"
    got = outcome_in(scheduler.finished(asked.request_id))
    assert got is not None
    return got


def prefetched(scheduler: SchedulerSide, name: str, blocks: int, rank: int = 1) -> KvOutcome:
    asked, job = begun(scheduler, name, blocks, rank)
    if job is not None:
        end(scheduler, job)
    return outcome(scheduler, asked)


def test_prefetched_blocks_are_free_and_found_under_the_engines_hashes() -> None:
    pool = Pool()
    scheduler = side(pool)
    asked, job = begun(scheduler, "p", 4)
    assert job is not None
    assert (job.prefetch, job.holders, job.chain_hashes) == (True, ("127.0.0.1:1",), tuple(chain("p", 4)))
    assert pool.free() == 36
    assert scheduler.matched(asked, 0, 0.0) is None, "the load has not ended"
    end(scheduler, job)
    assert outcome(scheduler, asked).loaded_blocks == 4
    assert pool.free() == 40
    assert [*pool.cached] == chain("p", 4)
    assert [*pool.named.values()] == [1, 2, 3, 4], "the gateway's keys"
    assert (len(scheduler), len(scheduler.prefetch)) == (0, 0)


def test_only_blocks_that_the_engine_lacks_are_loaded() -> None:
    pool = Pool()
    scheduler = side(pool)
    prefetched(scheduler, "p", 2)
    _, job = begun(scheduler, "p/again", 4)
    assert job is not None
    assert job.chain_hashes == tuple(chain("p", 4)[2:])


def test_a_failed_load_leaves_no_block_behind_that_requests_could_find() -> None:
    pool = Pool()
    scheduler = side(pool)
    asked, job = begun(scheduler, "p", 4)
    assert job is not None
    end(scheduler, job, blocks=1)
    assert outcome(scheduler, asked).loaded_blocks == 1
    assert [*pool.cached] == chain("p", 1)
    assert pool.free() == 40


@pytest.mark.parametrize("first", [1, 4])
def test_with_two_workers_blocks_count_once_both_have_them(first: int) -> None:
    pool = Pool()
    scheduler = side(pool, workers=2)
    asked, job = begun(scheduler, "p", 4)
    assert job is not None
    end(scheduler, job, blocks=first)
    assert scheduler.matched(asked, 0, 0.0) is None
    assert not pool.cached
    end(scheduler, job, blocks=5 - first)
    assert outcome(scheduler, asked).loaded_blocks == 1
    assert [*pool.cached] == chain("p", 1)


def test_reports_of_one_step_count_both_workers() -> None:
    end_of = [
        LoadEnd(request_id="p", outcome=KvOutcome(loaded_blocks=blocks), prefetch=True, workers=1) for blocks in (4, 3)
    ]
    joined = StepReport(ends=(end_of[0],)).joined(StepReport(ends=(end_of[1],)))
    assert [(item.workers, item.outcome.loaded_blocks) for item in joined.ends] == [(2, 3)]


def test_prefetches_take_no_more_than_their_share() -> None:
    scheduler = side(Pool())
    assert prefetched(scheduler, "p", 30).loaded_blocks == 10
    refused = prefetched(scheduler, "q", 4)
    assert (refused.loaded_blocks, refused.reason) == (0, "full")


def test_sessions_with_priority_take_the_place_of_others() -> None:
    pool = Pool()
    scheduler = side(pool)
    prefetched(scheduler, "low", 6, rank=5)
    prefetched(scheduler, "middle", 4, rank=3)
    assert prefetched(scheduler, "high", 5, rank=0).loaded_blocks == 5
    # The end of the least urgent prompt goes first.
    assert [*pool.cached] == [*chain("low", 1), *chain("middle", 4), *chain("high", 5)]
    assert prefetched(scheduler, "lower", 5, rank=9).reason == "full"


def test_used_blocks_are_the_engines_own() -> None:
    pool = Pool()
    scheduler = side(pool)
    prefetched(scheduler, "p", 10)
    user = request("user", blocks=10, prompt="p", load_blocks=0)
    scheduler.add(user, "")
    scheduler.step([progress("user", user.num_tokens, range(10, 21))], 5, 0.0)
    assert prefetched(scheduler, "q", 10).loaded_blocks == 10
    assert set(chain("p", 10)) <= set(pool.cached), "a request has used them"


def test_no_request_waits_for_the_memory_of_a_prefetch() -> None:
    pool = Pool()
    scheduler = side(pool)
    pool.take(28)
    # 12 are free: as many as prefetches may ever take stay free.
    assert prefetched(scheduler, "p", 8).loaded_blocks == 2
    pool.take(9)
    assert prefetched(scheduler, "q", 8).reason == "full"


def test_an_aborted_carrier_gives_its_blocks_back_after_the_load() -> None:
    pool = Pool()
    scheduler = side(pool)
    asked, job = begun(scheduler, "p", 4)
    assert job is not None
    scheduler.finished(asked.request_id)
    assert pool.free() == 36, "the worker still writes into them"
    end(scheduler, job)
    assert (pool.free(), len(scheduler.prefetch)) == (40, 0)


@pytest.mark.parametrize("broken", ["memory", "names", "nothing stored"])
def test_without_memory_or_names_nothing_is_prefetched(broken: str) -> None:
    scheduler = side(Pool(), names=Names(0 if broken == "nothing stored" else 100))
    if broken == "memory":
        scheduler.prefetch.memory = None
    if broken == "names":
        scheduler.names = None
    asked = carrier("p", 4)
    scheduler.add(asked, "")
    wait_until(lambda: scheduler.matched(asked, 0, 0.0) is not None)
    assert outcome(scheduler, asked).reason == "missing"


def test_in_random_histories_no_block_is_lost_and_the_share_holds() -> None:
    rng, pool = random.Random(7), Pool(60)
    scheduler = side(pool, workers=2)
    under_way: list[tuple[Request, LoadJob, int]] = []
    for number in range(400):
        if rng.random() < 0.5:
            asked, job = begun(scheduler, f"{rng.randrange(9)}/{number}", rng.randint(1, 12), rng.randrange(4))
            if job is None:
                outcome(scheduler, asked)
            else:
                under_way.append((asked, job, 2))
        elif under_way:
            asked, job, left = under_way.pop(rng.randrange(len(under_way)))
            ended = rng.randint(1, left)
            end(scheduler, job, rng.randint(0, len(job.block_ids)), workers=ended)
            if left > ended:
                under_way.append((asked, job, left - ended))
            elif rng.random() < 0.5:
                outcome(scheduler, asked)
            else:
                scheduler.finished(asked.request_id)
        in_use = sum(len(job.block_ids) for _, job, _ in under_way)
        assert pool.free() + in_use == 60
        assert len(set(pool.order)) == len(pool.order)
        assert in_use <= 15


def chained(made: NodeLookup, name: str, keys: Sequence[int]) -> list[bytes]:
    answers: list[list[bytes]] = []

    def came() -> bool:
        answer = made.chain(name, saves().domain, keys, 0.0)
        if answer is not None:
            answers.append(answer)
        return answer is not None

    wait_until(came)
    return answers[-1]


def test_a_worker_loads_what_its_node_names_and_requests_do_not_wait() -> None:
    with node() as manager, lookup(address(manager)) as names:
        computing, free = Memory(), Memory()
        for block in range(3):
            computing.fill(block, block)
        with worker(address(manager), computing) as made:
            store(made, saves())
        assert chained(names, "p", [1, 2, 3, 4]) == chain("p", 3), "the fourth is not there"
        assert chained(names, "q", [9, 1, 2]) == []
        job = LoadJob(
            request_id="p",
            block_ids=(8, 9, 10),
            chain_hashes=tuple(chain("p", 3)),
            holders=(address(manager),),
            domain=saves().domain,
            prefetch=True,
        )
        with worker(address(manager), free) as made:
            made.begin(StepJobs((job,)))
            made.start_loads()
            made.save()
            reports: list[StepReport] = []

            def ended() -> bool:
                assert made.take_ended() == (set(), set()), "vLLM knows no request that waits for these blocks"
                report = made.take_report()
                reports.extend([report] if report is not None else [])
                return bool(reports)

            wait_until(ended)
            assert [item.outcome.loaded_blocks for item in reports[0].ends] == [3]
            assert [free.block(8 + block) for block in range(3)] == [computing.block(block) for block in range(3)]
