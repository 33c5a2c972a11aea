"""The contract of every backend: a get returns the stored bytes or nothing. make test-mooncake runs Mooncake's part."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest

from kvstore.backends.backend import BackendSettings, KvBackend
from kvstore.backends.registry import BACKENDS
from kvstore.transfer.connection import PeerError
from kvstore.transfer.transfer_client import Wanted
from tests.kvstore.backends.mooncake_master import SEGMENT_BYTES, mooncake_master
from tests.kvstore.kv_blocks import KEYRING, SLOT, address, block, key, node, payload

ENDS = [1, 300, 999, 1000]
"""Ends of the parts of streamed blocks of 1000 bytes."""


class Store(NamedTuple):
    """A backend, and a block size at which forty blocks far exceed its capacity."""

    backend: KvBackend
    large: int


@pytest.fixture(params=sorted(BACKENDS))
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    with ExitStack() as running:
        if request.param == "mooncake":
            at, large = running.enter_context(mooncake_master()), SEGMENT_BYTES // 16
        else:
            at, large = address(running.enter_context(node())), SLOT
        settings = BackendSettings(address=at, keyring=KEYRING, segment_bytes=SEGMENT_BYTES)
        backend = BACKENDS[request.param](settings, time.monotonic)
        yield Store(backend, large)
        backend.close()


@pytest.fixture
def backend(store: Store) -> KvBackend:
    return store.backend


def get(backend: KvBackend, *names: object) -> list[bytes | None]:
    received = backend.get([Wanted(key(name)) for name in names])
    assert received.reason == ("" if None not in received.blocks else "missing")
    return [None if item is None else bytes(item.payload) for item in received.blocks]


def test_a_get_returns_the_stored_bytes(backend: KvBackend) -> None:
    assert backend.put([block("a"), block("b", "a")])
    assert get(backend, "b", "x", "a") == [bytes(payload("b")), None, bytes(payload("a"))]
    assert backend.exist([key("a"), key("x")]) == [True, False]


def test_a_repeated_put_keeps_the_block(backend: KvBackend) -> None:
    assert backend.put([block("a")])
    assert backend.put([block("a"), block("b", "a")])
    assert get(backend, "a", "b") == [bytes(payload("a")), bytes(payload("b"))]


def test_given_buffers_are_filled_if_they_are_large_enough(backend: KvBackend) -> None:
    backend.put([block("a"), block("b")])
    buffer = memoryview(bytearray(2000))
    wanted = [Wanted(key("a"), buffer), Wanted(key("b"), memoryview(bytearray(999)))]
    [large, small] = backend.get(wanted).blocks
    assert large is not None
    assert bytes(buffer[:1000]) == bytes(large.payload) == bytes(payload("a"))
    assert small is None


def test_ephemeral_prompts_are_not_stored(backend: KvBackend) -> None:
    assert not backend.put([block("a")], "ephemeral")
    assert get(backend, "a") == [None]


def test_a_context_cache_stays_while_other_blocks_are_evicted(store: Store) -> None:
    assert store.backend.put([block("kept", length=store.large)], "context_cache", 60.0)
    store.backend.pin([key("kept")], 60.0)
    for number in range(40):
        store.backend.put([block(number, length=store.large)])
    assert get(store.backend, "kept") == [bytes(payload("kept", store.large))]
    assert store.backend.exist([key(number) for number in range(40)]).count(True) < 40


def test_a_put_that_does_not_fit_is_rejected_and_changes_nothing(store: Store) -> None:
    assert store.backend.put([block("a")])
    assert not store.backend.put([block("b", length=32 * store.large)])
    assert get(store.backend, "a", "b") == [bytes(payload("a")), None]


@pytest.mark.parametrize("seed", range(3))
def test_a_block_can_be_lost_but_never_changed(backend: KvBackend, seed: int) -> None:
    rng, hits = random.Random(seed), 0
    for _ in range(150):
        name = rng.randrange(20)
        if rng.random() < 0.5:
            backend.put([block(name, length=100 + name)])
        else:
            [got] = get(backend, name)
            assert got in (None, bytes(payload(name, 100 + name)))
            hits += got is not None
    assert hits > 10


def test_a_dead_node_has_no_blocks_and_raises_an_error() -> None:
    backend = BACKENDS["node"](BackendSettings(address="127.0.0.1:1", keyring=KEYRING), time.monotonic)
    received = backend.get([Wanted(key("a"))])
    assert (received.blocks, received.reason) == ([None], "failed")
    with pytest.raises(PeerError):
        backend.exist([key("a")])
    backend.close()


def test_streamed_parts_arrive_in_order_and_make_up_the_stored_bytes(backend: KvBackend) -> None:
    backend.put([block(name) for name in "abc"])
    buffers = [memoryview(bytearray(1000)) for _ in "abc"]
    wanted = [Wanted(key(name), into) for name, into in zip("abc", buffers, strict=True)]
    parts: list[int] = []

    def arrived(part: int) -> None:
        parts.append(part)
        end = ENDS[part]
        assert [bytes(into[:end]) for into in buffers] == [bytes(payload(name)[:end]) for name in "abc"]

    received = backend.stream(wanted, (), ENDS, arrived)
    assert [bytes(item.payload) if item else None for item in received.blocks] == [bytes(payload(n)) for n in "abc"]
    assert parts[-1] == len(ENDS) - 1
    assert parts == sorted(parts)


def test_without_all_blocks_no_part_is_streamed(backend: KvBackend) -> None:
    backend.put([block("a"), block("c")])
    wanted = [Wanted(key(name), memoryview(bytearray(1000))) for name in "abc"]
    parts: list[int] = []
    received = backend.stream(wanted, (), ENDS, parts.append)
    assert (parts, received.blocks[1], received.reason) == ([], None, "missing")
