"""Two tensor-parallel ranks with a node: each stores and loads its own bytes, and the engine has what both have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from kvstore.backends.backend import BackendSettings
from kvstore.backends.node_backend import NodeBackend
from kvstore.connector.domain_keys import Domain
from kvstore.connector.step_messages import LoadEnd, StepReport
from kvstore.connector.worker_side import WorkerSide
from tests.kvstore.connector.engine_blocks import FORMAT, Memory, settings
from tests.kvstore.connector.test_worker_side import Clock, load, loads, saves, store
from tests.kvstore.kv_blocks import KEYRING, address, node


@contextmanager
def ranks(at: str, memories: list[Memory]) -> Iterator[list[WorkerSide]]:
    made = []
    for rank, memory in enumerate(memories):
        rank_format = msgspec.structs.replace(FORMAT, tp_rank=rank, tp_size=len(memories))
        backend = NodeBackend(BackendSettings(address=at, keyring=KEYRING, timeout_s=5.0), Clock())
        made.append(WorkerSide(settings(node=at), backend, memory, rank_format, Clock()))
    try:
        yield made
    finally:
        for item in made:
            item.close()


def rank_memories(count: int = 2) -> list[Memory]:
    made = [Memory() for _ in range(count)]
    for rank, memory in enumerate(made):
        for number in range(3):
            memory.fill(number, f"{number} of rank {rank}")
    return made


def test_each_rank_loads_its_own_bytes() -> None:
    with node() as manager:
        sources, targets = rank_memories(), [Memory(), Memory()]
        with ranks(address(manager), sources) as workers:
            for worker in workers:
                store(worker, saves())
        assert manager.store.counts.stored == 6
        with ranks("", targets) as workers:
            ends = [load(worker, loads(address(manager))) for worker in workers]
    assert [(end.loaded_blocks, failed) for end, failed in ends] == [(3, set()), (3, set())]
    for source, target in zip(sources, targets, strict=True):
        assert [target.block(8 + number) for number in range(3)] == [source.block(number) for number in range(3)]


def test_an_engine_has_the_blocks_that_both_ranks_loaded() -> None:
    with node() as manager:
        with ranks(address(manager), rank_memories()) as workers:
            store(workers[0], saves(3))
            store(workers[1], saves(2))
        with ranks("", [Memory(), Memory()]) as workers:
            reports = []
            for worker in workers:
                outcome, _ = load(worker, loads(address(manager)))
                reports.append(StepReport(ends=(LoadEnd(request_id="a", outcome=outcome),)))
    for one, other in (reports, reports[::-1]):
        assert [end.outcome.loaded_blocks for end in one.joined(other).ends] == [2]


def test_blocks_of_one_rank_are_not_those_of_two() -> None:
    with node() as manager:
        with ranks(address(manager), rank_memories(1)) as workers:
            store(workers[0], saves())
        with ranks("", [Memory(), Memory()]) as workers:
            assert [load(worker, loads(address(manager)))[0].loaded_blocks for worker in workers] == [0, 0]
        with ranks("", [Memory()]) as workers:
            assert load(workers[0], loads(address(manager), domain=Domain(lora="adapter@/a")))[0].loaded_blocks == 0
            assert load(workers[0], loads(address(manager)))[0].loaded_blocks == 3
