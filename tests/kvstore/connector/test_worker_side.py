"""Two engines' workers with a node between them: one loads blocks that the other stored, or computes them.

Layers follow one another in a payload; the layout's name covers everything that determines their bytes.

Different weights under the same name have a different revision.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kvstore.backends.backend import BackendSettings
from kvstore.backends.node_backend import NodeBackend
from kvstore.connector.connector_settings import adapter_revision, weight_revision
from kvstore.connector.domain_keys import Domain, DomainKeys
from kvstore.connector.engine_params import KvOutcome
from kvstore.connector.payload_layout import LayerLayout, payload_layout
from kvstore.connector.step_messages import LoadJob, SaveJob, StepJobs
from kvstore.connector.worker_side import WorkerSide
from kvstore.node.node_manager import NodeManager
from kvstore.tiers.block_facts import DRAM
from tests.kvstore.connector.engine_blocks import FORMAT, PAYLOAD, TOKENS, Memory, chain, settings
from tests.kvstore.kv_blocks import KEYRING, address, node
from tests.patience import wait_until

GONE = "127.0.0.1:1"


class Clock:
    """Seconds set by the test."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def worker(at: str, memory: Memory, clock: Clock | None = None, **changes: Any) -> Iterator[WorkerSide]:
    ticking = clock or Clock()
    backend = NodeBackend(BackendSettings(address=at, keyring=KEYRING, timeout_s=5.0), ticking)
    made = WorkerSide(settings(node=at, **changes), backend, memory, FORMAT, ticking)
    try:
        yield made
    finally:
        made.close()


def saves(count: int = 3, prompt: object = "p", **changes: Any) -> SaveJob:
    hashes = tuple(chain(prompt, count))
    parents = (b"", *hashes[:-1])
    keys = tuple(range(1, count + 1))
    facts = {"tenant": "acme", "domain": Domain(), **changes}
    return SaveJob(block_ids=tuple(range(count)), chain_hashes=hashes, parents=parents, routing_keys=keys, **facts)


def loads(*holders: str, count: int = 3, prompt: object = "p", domain: Domain | None = None) -> LoadJob:
    return LoadJob(
        request_id="a",
        block_ids=tuple(range(8, 8 + count)),
        chain_hashes=tuple(chain(prompt, count)),
        holders=holders,
        domain=domain or Domain(),
    )


def store(made: WorkerSide, *jobs: SaveJob) -> None:
    made.begin(StepJobs((), jobs, 0))
    made.start_loads()
    made.save()
    assert made.saver is not None
    assert made.saver.settle(20.0)


def load(made: WorkerSide, job: LoadJob) -> tuple[KvOutcome, set[int]]:
    made.begin(StepJobs((job,)))
    made.start_loads()
    made.save()
    failed: set[int] = set()
    ended: set[str] = set()

    def has_ended() -> bool:
        now_ended, now_failed = made.take_ended()
        ended.update(now_ended)
        failed.update(now_failed)
        return ended == {"a"}

    wait_until(has_ended)
    report = made.take_report()
    assert report is not None
    return report.ends[0].outcome, failed


def filled(blocks: int = 3) -> Memory:
    memory = Memory()
    for number in range(blocks):
        memory.fill(number, number)
    return memory


def test_blocks_stored_by_one_engine_are_loaded_by_another() -> None:
    first, second = filled(), Memory()
    with node() as manager:
        with worker(address(manager), first) as one:
            store(one, saves())
        with worker("", second) as two:
            end, failed = load(two, loads(GONE, address(manager)))
        assert (end.loaded_blocks, end.loaded_bytes, end.holder, end.reason) == (3, 3 * PAYLOAD, address(manager), "")
        assert failed == set()
    assert [second.block(8 + number) for number in range(3)] == [first.block(number) for number in range(3)]


def test_the_node_receives_tenant_routing_key_and_position_of_each_block() -> None:
    with node() as manager, worker(address(manager), filled()) as one:
        store(one, saves())
        keys = DomainKeys(FORMAT).keys(Domain(), chain("p", 3))
        facts = [record.facts for key in keys if (record := manager.store.catalog.find(key))]
    assert [(fact.routing_key, fact.parent, fact.tokens) for fact in facts] == [
        (1, b"", TOKENS),
        (2, keys[0], TOKENS),
        (3, keys[1], TOKENS),
    ]
    assert {fact.tenant for fact in facts} == {"acme"}


def test_blocks_that_the_node_holds_are_not_sent_again() -> None:
    with node() as manager, worker(address(manager), filled()) as one:
        store(one, saves(2))
        store(one, saves(3))
        assert manager.store.counts.stored == 3
        assert one.saver is not None
        assert one.saver.stored == 5


@pytest.mark.parametrize("domain", [Domain(salt="other"), Domain(lora="adapter@/a")])
def test_another_domain_has_no_hits(domain: Domain) -> None:
    memory = Memory()
    with node() as manager, worker(address(manager), filled()) as one:
        store(one, saves())
        end, failed = load(one, loads(address(manager), domain=domain))
    assert (end.loaded_blocks, end.reason, failed) == (0, "missing", {8, 9, 10})
    assert not any(memory.data)


def test_only_leading_blocks_are_used() -> None:
    """The first block is missing on one node, and the last on the other."""
    memory, source = Memory(), filled()
    with node() as a, node(node_id="n2") as b, worker("", memory) as two:
        with worker(address(a), source) as one:
            store(one, saves(2))
        end, failed = load(two, loads(address(b), address(a)))
        assert (end.loaded_blocks, end.holder, end.reason, failed) == (2, address(a), "missing", {10})
    assert memory.block(9) == source.block(1)
    assert not any(memory.block(10))


def test_a_corrupt_block_is_computed() -> None:
    memory = Memory()
    with node() as manager, worker(address(manager), filled()) as one:
        store(one, saves())
        _flip(manager, DomainKeys(FORMAT).keys(Domain(), chain("p", 3))[1])
        with worker("", memory) as two:
            end, failed = load(two, loads(address(manager)))
        assert (end.loaded_blocks, end.reason, failed) == (1, "missing", {9, 10})
    assert not any(memory.block(9))


def _flip(manager: NodeManager, key: bytes) -> None:
    record = manager.store.catalog.find(key)
    assert record is not None
    manager.store.arena.view(record.slots[DRAM], PAYLOAD)[17] ^= 1


def test_a_dead_node_costs_its_blocks_and_raises_no_error() -> None:
    memory = Memory()
    with worker(GONE, memory) as one:
        end, failed = load(one, loads(GONE, "no address"))
        assert (end.loaded_blocks, end.reason, failed) == (0, "failed", {8, 9, 10})
        store(one, saves())
        report = one.take_report()
    assert report is not None
    assert report.unsaved == tuple(chain("p", 3))


def test_an_engine_that_cannot_accept_the_bytes_computes() -> None:
    memory = Memory()
    with node() as manager, worker(address(manager), filled()) as one:
        store(one, saves())
        memory.fails = True
        with worker("", memory) as two:
            end, failed = load(two, loads(address(manager)))
    assert (end.loaded_blocks, end.reason, failed) == (0, "failed", {8, 9, 10})


def test_a_load_that_times_out_is_abandoned_and_writes_nothing() -> None:
    """The node's worker holds the blocks until the engine has timed out."""
    memory, clock, go_on, held = Memory(), Clock(), threading.Event(), threading.Event()
    with node() as manager, worker(address(manager), filled()) as one, worker("", memory, clock) as two:
        store(one, saves())
        reading = manager.store.reading

        def slowly(*given: Any, **named: Any) -> Any:
            held.set()
            assert go_on.wait(60.0)
            return reading(*given, **named)

        manager.store.reading = slowly  # type: ignore[method-assign]
        two.begin(StepJobs((loads(address(manager)),)))
        two.start_loads()
        assert held.wait(20.0)
        assert two.take_ended() == (set(), set())
        clock.now = 2.0
        assert two.take_ended() == ({"a"}, {8, 9, 10})
        go_on.set()
        manager.store.reading = reading  # type: ignore[method-assign]
        wait_until(lambda: len(manager.server) == 0 or not any(memory.data))
    assert not any(memory.data)


def test_a_step_of_mostly_prefill_measures_the_time_per_token() -> None:
    clock = Clock()
    with worker(GONE, filled(), clock) as one:
        one.begin(StepJobs((), (saves(),), 100))
        clock.now = 0.2
        one.save()
        report = one.take_report()
        assert report is not None
        assert report.token_s == pytest.approx(0.002)
        one.begin(StepJobs((), (), 100))
        clock.now = 0.4
        one.save()
        report = one.take_report()
        assert report is None or report.token_s == 0.0


def layer(name: str = "0", dtype: str = "bfloat16", order: tuple[int, ...] = (0, 1, 2)) -> LayerLayout:
    return LayerLayout(name, dtype, (2, 16, 4), order, 256)


def test_each_layer_has_an_offset() -> None:
    layout = payload_layout([layer("0"), layer("1")], "kernel")
    assert (layout.offsets, layout.payload_bytes) == ((0, 256), 512)
    assert layout.name == payload_layout([layer("0"), layer("1")], "kernel").name


@pytest.mark.parametrize(
    ("layers", "kernel"),
    [
        ([layer("0")], "kernel"),
        ([layer("0"), layer("2")], "kernel"),
        ([layer("0", dtype="float16"), layer("1")], "kernel"),
        ([layer("0", order=(1, 0, 2)), layer("1")], "kernel"),
        ([layer("0"), layer("1")], "another"),
    ],
    ids=["layers", "names", "dtype", "order of dimensions", "kernel"],
)
def test_different_bytes_have_a_different_name(layers: list[LayerLayout], kernel: str) -> None:
    assert payload_layout(layers, kernel).name != payload_layout([layer("0"), layer("1")], "kernel").name


def test_an_engine_without_blocks_has_no_layout() -> None:
    with pytest.raises(ValueError, match="no KV caches"):
        payload_layout([], "kernel")


def model(folder: Path, size: int = 1 << 20, seed: int = 1) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"layers": 2}')
    (folder / "model.safetensors").write_bytes(random.Random(seed).randbytes(size))
    return folder


def test_equal_files_have_equal_revisions_in_any_folder(tmp_path: Path) -> None:
    assert weight_revision(model(tmp_path / "a")) == weight_revision(model(tmp_path / "elsewhere" / "b"))


def test_further_trained_weights_have_another_revision(tmp_path: Path) -> None:
    assert weight_revision(model(tmp_path / "a")) != weight_revision(model(tmp_path / "b", seed=2))


@pytest.mark.parametrize("size", [0, 1, 4096, 5000])
def test_small_files_are_hashed_completely(tmp_path: Path, size: int) -> None:
    one = weight_revision(model(tmp_path / "a", size))
    assert one == weight_revision(model(tmp_path / "b", size))
    assert one != weight_revision(model(tmp_path / "c", size + 1))


def test_the_configuration_changes_the_revision(tmp_path: Path) -> None:
    first, second = model(tmp_path / "a"), model(tmp_path / "b")
    (second / "config.json").write_text('{"layers": 3}')
    assert weight_revision(first) != weight_revision(second)


def test_an_adapter_is_known_by_its_files_as_of_its_first_use(tmp_path: Path) -> None:
    first, second = model(tmp_path / "a"), model(tmp_path / "b")
    (second / "adapter_config.json").write_text('{"lora_alpha": 32}')
    one = adapter_revision("sql", first, 1)
    assert one == adapter_revision("sql", model(tmp_path / "elsewhere"), 1)
    assert len({one, adapter_revision("sql", second, 1), adapter_revision("other", first, 1)}) == 3
    (first / "adapter_config.json").write_text('{"lora_alpha": 64}')
    assert adapter_revision("sql", first, 1) == one
    assert adapter_revision("sql", first, 2) != one
    assert adapter_revision("sql", tmp_path / "on a hub", 1) == f"sql@{tmp_path / 'on a hub'}"


def test_a_folder_without_weights_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="set weight_revision"):
        weight_revision(tmp_path)
