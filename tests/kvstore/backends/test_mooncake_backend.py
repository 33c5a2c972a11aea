"""Mooncake Store under the connector: engines load blocks that others stored, and compute lost ones."""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from kvstore.backends.backend import BackendSettings
from kvstore.backends.mooncake_backend import MooncakeBackend, MooncakeMissingError
from kvstore.connector.connector_settings import settings_in
from kvstore.connector.domain_keys import Domain
from kvstore.connector.node_lookup import NodeLookup
from kvstore.connector.worker_side import WorkerSide
from kvstore.transfer.connection import PeerError
from kvstore.transfer.transfer_client import Received, Wanted
from tests.kvstore.backends.mooncake_master import SEGMENT_BYTES, mooncake_master
from tests.kvstore.connector.engine_blocks import FORMAT, PAYLOAD, Memory
from tests.kvstore.connector.test_node_lookup import answered
from tests.kvstore.connector.test_worker_side import filled, load, loads, saves, store
from tests.kvstore.kv_blocks import block, key


@contextmanager
def member(master: str, segment_bytes: int = SEGMENT_BYTES) -> Iterator[MooncakeBackend]:
    made = MooncakeBackend(BackendSettings(address=master, segment_bytes=segment_bytes), time.monotonic)
    try:
        yield made
    finally:
        made.close()


@contextmanager
def engine(master: str, memory: Memory, segment_mib: int = 64) -> Iterator[tuple[WorkerSide, NodeLookup]]:
    """Yield both sides of a connector whose options name Mooncake."""
    options = {"backend": "mooncake", "node": master, "mooncake_segment_mib": segment_mib, "load_timeout_s": 20.0}
    settings = settings_in(options)
    worker = MooncakeBackend(settings.store(b"", keeps=True), time.monotonic)
    lookup = NodeLookup(MooncakeBackend(settings.store(b"", keeps=False), time.monotonic), 60.0, FORMAT)
    made = WorkerSide(settings, worker, memory, FORMAT, time.monotonic)
    try:
        yield made, lookup
    finally:
        made.close()
        lookup.close()


def test_blocks_stored_by_one_engine_are_loaded_by_another() -> None:
    first, second = filled(), Memory()
    with mooncake_master() as master, engine(master, first) as (one, _), engine(master, second, 0) as (two, asked):
        store(one, saves())
        assert answered(asked, "a", 4) == 3
        assert answered(asked, "b", 4, Domain(salt="another tenant")) == 0
        end, failed = load(two, loads(master))
        assert (end.loaded_blocks, end.loaded_bytes, end.reason, failed) == (3, 3 * PAYLOAD, "", set())
    assert [second.block(8 + number) for number in range(3)] == [first.block(number) for number in range(3)]


def test_a_changed_block_is_a_miss_and_is_removed() -> None:
    with mooncake_master() as master, member(master) as one:
        facts, payload = block("a")
        one.put([(facts, memoryview(bytes(payload)[::-1]))])
        assert one.get([Wanted(key("a"))]) == Received([None], {"": "missing"})
        assert one.corrupt == 1
        assert one.put([block("a")])
        assert one.exist([key("a")]) == [True]
        (got,) = one.get([Wanted(key("a"))]).blocks
        assert got is not None
        assert got.payload == payload


def test_a_long_prompt_is_loaded_in_pieces_up_to_the_first_missing_block() -> None:
    with mooncake_master() as master, member(master) as one:
        there = [*range(40), 90]
        assert one.put([block(number) for number in there])
        got = one.get([Wanted(key(number)) for number in range(100)]).blocks
        assert [index for index, payload in enumerate(got) if payload is not None] == list(range(40))


def test_a_running_call_ends_before_the_store_closes() -> None:
    with mooncake_master() as master:
        made = MooncakeBackend(BackendSettings(address=master, segment_bytes=SEGMENT_BYTES), time.monotonic)
        assert made.put([block("a")])
        with made._in_use():
            made.close()
            assert made._store.is_exist(key("a").hex()) == 1
            with pytest.raises(PeerError, match="has left"):
                made.get([Wanted(key("a"))])
        assert made._store is None
        made.close()


def test_blocks_lost_with_their_engine_are_computed() -> None:
    with mooncake_master() as master, engine(master, Memory(), 0) as (two, asked):
        with engine(master, filled()) as (one, _):
            store(one, saves())
            assert answered(asked, "a", 3) == 3
        end, failed = load(two, loads(master))
        assert (end.loaded_blocks, failed) == (0, {8, 9, 10})
        assert end.reason in ("missing", "failed")


def test_a_dead_master_costs_a_computation_and_raises_no_error() -> None:
    with ExitStack() as stack:
        with mooncake_master() as master:
            one, asked = stack.enter_context(engine(master, filled()))
            store(one, saves())
        store(one, saves(prompt="q"))
        report = one.take_report()
        assert report is not None
        assert len(report.unsaved) == 3
        assert answered(asked, "a", 3) == 0
        end, failed = load(one, loads(master, prompt="q"))
        assert (end.loaded_blocks, failed) == (0, {8, 9, 10})
        assert end.reason in ("failed", "late")


def test_without_mooncake_the_error_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(MooncakeMissingError, match=r"pip install mooncake-transfer-engine.*libibverbs1.*No module"):
        MooncakeBackend(BackendSettings(address="127.0.0.1:1"), time.monotonic)
