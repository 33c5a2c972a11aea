"""What every backend keeps to: a get returns what was put, or nothing."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from kvstore.backends.backend import BACKENDS, KvBackend
from tests.kvstore.kv_blocks import SECRET, address, block, key, node, payload


@pytest.fixture(params=sorted(BACKENDS))
def backend(request: pytest.FixtureRequest) -> Iterator[KvBackend]:
    with ExitStack() as running:
        addresses = [address(running.enter_context(node())) for _ in range(2)]
        store = BACKENDS[request.param](addresses, SECRET, time.monotonic)
        yield store
        store.close()


def get(backend: KvBackend, *names: object) -> list[bytes | None]:
    return [None if each is None else bytes(each) for each in backend.get([(key(name), None) for name in names])]


def test_it_returns_what_was_put(backend: KvBackend) -> None:
    assert backend.put([block("a"), block("b", "a")], "default", 0.0)
    assert get(backend, "b", "x", "a") == [bytes(payload("b")), None, bytes(payload("a"))]
    assert backend.exist([key("a"), key("x")]) == [True, False]


def test_it_fills_the_buffers_given(backend: KvBackend) -> None:
    backend.put([block("a")], "default", 0.0)
    buffer = memoryview(bytearray(2000))
    [found] = backend.get([(key("a"), buffer)])
    assert found is not None
    assert bytes(buffer[:1000]) == bytes(found) == bytes(payload("a"))


def test_ephemeral_prompts_are_not_kept(backend: KvBackend) -> None:
    assert not backend.put([block("a")], "ephemeral", 0.0)
    assert get(backend, "a") == [None]


def test_a_context_cache_stays_while_others_come(backend: KvBackend) -> None:
    assert backend.put([block("kept")], "context_cache", 60.0)
    for number in range(40):
        backend.put([block(number)], "default", 0.0)
    assert get(backend, "kept") == [bytes(payload("kept"))]


def test_a_purge_takes_one_tenant_s_blocks(backend: KvBackend) -> None:
    backend.put([block("a", tenant="acme")], "default", 0.0)
    backend.put([block("b", tenant="other")], "default", 0.0)
    assert backend.purge("acme")
    assert get(backend, "a", "b") == [None, bytes(payload("b"))]


@pytest.mark.parametrize("seed", range(3))
def test_it_may_lose_a_block_but_never_changes_one(backend: KvBackend, seed: int) -> None:
    rng, hits = random.Random(seed), 0
    for _ in range(150):
        name = rng.randrange(20)
        if rng.random() < 0.5:
            backend.put([block(name, length=100 + name)], "default", 0.0)
        else:
            [found] = get(backend, name)
            assert found in (None, bytes(payload(name, 100 + name)))
            hits += found is not None
    assert hits > 10
