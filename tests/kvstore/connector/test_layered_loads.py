"""Loads and saves by layers: the engine computes a layer while later ones arrive, and earlier ones are copied."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kvstore.connector import block_loader
from kvstore.connector.domain_keys import Domain, DomainKeys
from kvstore.connector.engine_params import KvOutcome
from kvstore.connector.step_messages import LoadJob, SaveJob, StepJobs
from kvstore.connector.worker_side import WorkerSide
from kvstore.node.node_manager import NodeManager
from kvstore.tiers.block_facts import DRAM
from tests.kvstore.connector.engine_blocks import FORMAT, LAYER_ENDS, PAYLOAD, Memory, chain
from tests.kvstore.connector.test_worker_side import GONE, filled, saves, store, worker
from tests.kvstore.kv_blocks import address, node
from tests.patience import wait_until

LAYERS = [str(number) for number in range(len(LAYER_ENDS))]


@pytest.fixture(autouse=True)
def _a_part_per_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_loader, "MIN_PART_BYTES", 1)


def layered(*holders: str, count: int = 3, timeout_s: float = 60.0) -> LoadJob:
    return LoadJob(
        request_id="a",
        block_ids=tuple(range(8, 8 + count)),
        chain_hashes=tuple(chain("p", count)),
        holders=holders,
        domain=Domain(),
        timeout_s=timeout_s,
        layered=True,
    )


def later(count: int = 2) -> SaveJob:
    """Return a job that saves blocks which the step computes after the loaded ones."""
    return saves(count, "later")


@contextmanager
def stored(memory: Memory | None = None) -> Iterator[NodeManager]:
    with node() as manager, worker(address(manager), memory or filled()) as one:
        store(one, saves())
        yield manager


class Gate:
    """Lets a node answer reads one by one. With `cut`, the others fail."""

    def __init__(self, manager: NodeManager) -> None:
        self._go_on, self._reading = threading.Semaphore(0), manager.store.reading
        self.cut = False
        manager.store.reading = self._later  # type: ignore[method-assign]

    def open(self, reads: int = 1) -> None:
        self._go_on.release(reads)

    def _later(self, *given: Any, **named: Any) -> Any:
        assert self._go_on.acquire(timeout=60.0)
        if self.cut:
            raise OSError("the node is cut off")
        return self._reading(*given, **named)


def step(made: WorkerSide, *jobs: LoadJob, to_save: SaveJob | None = None, wait: bool = True) -> None:
    """Run a step of the engine that computes all layers."""
    made.begin(StepJobs(jobs, (to_save,) if to_save else ()))
    made.start_loads()
    for layer in LAYERS if wait else ():
        made.wait_for_layer(layer)
        made.save_layer(layer)
    made.save()


def outcome(made: WorkerSide) -> tuple[KvOutcome, set[int]]:
    ended, failed = made.take_ended()
    assert ended == set(), "the engine knows that the load has ended with the step"
    report = made.take_report()
    assert report is not None
    return report.ends[0].outcome, failed


def test_a_layer_is_computed_before_the_next_one_arrives() -> None:
    """The node sends a layer only after the engine has computed the previous one, and a whole load would time out."""
    memory = Memory()
    with stored() as manager, worker("", memory) as two:
        gate = Gate(manager)
        two.begin(StepJobs((layered(address(manager)),)))
        two.start_loads()
        for layer in LAYERS:
            gate.open()
            two.wait_for_layer(layer)
            memory.events.append(f"computed {layer}")
        two.save()
        end, failed = outcome(two)
    expected = [(f"loaded {number}:{number + 1}", f"computed {number}") for number in range(4)]
    assert memory.events == [event for pair in expected for event in pair]
    assert (end.loaded_blocks, end.loaded_bytes, end.holder, failed) == (3, 3 * PAYLOAD, address(manager), set())
    assert [memory.block(8 + number) for number in range(3)] == [filled().block(number) for number in range(3)]


def test_a_layer_is_copied_before_the_next_one_is_computed() -> None:
    memory = filled()
    with node() as manager, worker(address(manager), memory) as one:
        one.begin(StepJobs((), (saves(),)))
        one.start_loads()
        for number, layer in enumerate(LAYERS):
            one.wait_for_layer(layer)
            memory.events.append(f"computed {layer}")
            one.save_layer(layer)
            wait_until(lambda number=number: f"saved {number}:{number + 1}" in memory.events)  # type: ignore[misc]
        one.save()
        assert one.saver is not None
        assert one.saver.settle(20.0)
        expected = [(f"computed {number}", f"saved {number}:{number + 1}") for number in range(4)]
        assert memory.events == [event for pair in expected for event in pair]
        target = Memory()
        with worker("", target) as two:
            step(two, layered(address(manager)))
    assert [target.block(8 + number) for number in range(3)] == [memory.block(number) for number in range(3)]


def test_layers_that_are_computed_in_another_order_are_copied_when_they_are_computed() -> None:
    memory = filled()
    with node() as manager, worker(address(manager), memory) as one:
        one.begin(StepJobs((), (saves(),)))
        one.start_loads()
        one.save_layer("1")
        one.save_layer("1")
        one.save_layer("a layer without a cache")
        one.save_layer("0")
        wait_until(lambda: len(memory.events) == 2)
        assert memory.events == ["saved 1:2", "saved 0:1"]
        one.save()
        assert memory.events == ["saved 1:2", "saved 0:1", "saved 2:4"]


def test_small_layers_arrive_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_loader, "MIN_PART_BYTES", 3 * 500)
    memory = Memory()
    with stored() as manager, worker("", memory) as two:
        step(two, layered(address(manager)))
        assert outcome(two)[0].loaded_blocks == 3
    assert memory.events == ["loaded 0:2", "loaded 2:4"]


def test_a_node_that_is_lost_between_two_layers_costs_all_blocks_and_the_step_stores_nothing() -> None:
    memory = filled()
    with stored() as manager, node(node_id="n2") as own, worker(address(own), memory) as two:
        gate = Gate(manager)
        gate.open(2)
        two.begin(StepJobs((layered(address(manager)),), (later(),)))
        two.start_loads()
        two.wait_for_layer("1")
        gate.cut = True
        gate.open(10)
        two.wait_for_layer("3")
        two.save()
        ended, failed = two.take_ended()
        report = two.take_report()
        assert report is not None
        assert (ended, failed, report.ends[0].outcome.loaded_blocks) == (set(), {8, 9, 10}, 0)
        assert report.ends[0].outcome.reason == "failed"
        assert report.unsaved == tuple(chain("later", 2))
        assert own.store.counts.stored == 0
        step(two, to_save=later())
        assert two.saver is not None
        assert two.saver.settle(20.0)
        assert own.store.counts.stored == 2


def test_a_corrupt_block_is_found_by_the_end_of_the_step() -> None:
    memory = filled()
    with stored() as manager, worker(address(manager), memory) as two:
        record = manager.store.catalog.find(DomainKeys(FORMAT).keys(Domain(), chain("p", 3))[1])
        assert record is not None
        manager.store.arena.view(record.slots[DRAM], PAYLOAD)[900] ^= 1
        step(two, layered(address(manager)), to_save=later())
        failed = two.take_ended()[1]
        report = two.take_report()
    assert report is not None
    assert (report.ends[0].outcome.loaded_blocks, failed) == (1, {9, 10})
    assert report.unsaved == tuple(chain("later", 2))


def test_a_late_load_ends_with_its_time_limit_and_writes_nothing_afterwards() -> None:
    memory = Memory()
    with stored() as manager, worker("", memory) as two:
        gate = Gate(manager)
        step(two, layered(address(manager), timeout_s=0.01))
        end, failed = outcome(two)
        assert (end.loaded_blocks, end.reason, failed) == (0, "late", {8, 9, 10})
        gate.open(20)
    assert not any(memory.data)


@pytest.mark.parametrize("first", [GONE, ""], ids=["dead", "without blocks"])
def test_if_the_first_holder_has_not_all_blocks_the_leading_ones_come_from_others(first: str) -> None:
    memory = Memory()
    with stored() as manager, node(node_id="n2") as other, worker("", memory) as two:
        step(two, layered(first or address(other), address(manager), count=4))
        end, failed = outcome(two)
        assert (end.loaded_blocks, end.holder, failed) == (3, address(manager), {11})
    assert [memory.block(8 + number) for number in range(3)] == [filled().block(number) for number in range(3)]


def test_an_engine_that_waits_for_no_layer_computes_the_blocks() -> None:
    with stored() as manager, worker("", Memory()) as two:
        step(two, layered(address(manager)), wait=False)
        end, failed = outcome(two)
    assert (end.loaded_blocks, end.reason, failed) == (0, "failed", {8, 9, 10})


def test_an_engine_that_cannot_accept_the_bytes_computes() -> None:
    memory = Memory()
    memory.fails = True
    with stored() as manager, worker("", memory) as two:
        step(two, layered(address(manager)))
        end, failed = outcome(two)
    assert (end.loaded_blocks, end.reason, failed) == (0, "failed", {8, 9, 10})
