"""Blocks are stored in the background, within a limit, and every block that was not stored is reported.

Blocks of one prompt have different keys under a different adapter or salt.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kvstore.backends.backend import BackendSettings
from kvstore.backends.node_backend import NodeBackend
from kvstore.connector import domain_keys
from kvstore.connector.block_saver import BlockSaver
from kvstore.connector.domain_keys import Domain, DomainKeys
from kvstore.connector.step_messages import SaveJob
from kvstore.keys.payload_key import PayloadFormat, PayloadKeys
from kvstore.node.node_manager import NodeManager
from kvstore.transfer.frames import MAX_PAYLOAD_BYTES
from tests.kvstore.connector.engine_blocks import FORMAT, PAYLOAD, TOKENS, chain
from tests.kvstore.kv_blocks import KEYRING, address, node, payload


@contextmanager
def saver(at: str, buffer_bytes: int = 1 << 20) -> Iterator[BlockSaver]:
    backend = NodeBackend(BackendSettings(address=at, keyring=KEYRING), time.monotonic)
    made = BlockSaver(backend, TOKENS, PAYLOAD, buffer_bytes)
    try:
        yield made
    finally:
        made.close(20.0)
        backend.close()


def a_job(prompt: object, count: int = 2, **changes: Any) -> SaveJob:
    hashes = tuple(chain(prompt, count))
    return SaveJob(
        block_ids=tuple(range(count)),
        chain_hashes=hashes,
        parents=(b"",) * count,
        routing_keys=(0,) * count,
        domain=Domain(),
        **changes,
    )


def offer(made: BlockSaver, prompt: object, count: int = 2, **changes: Any) -> SaveJob:
    job = a_job(prompt, count, **changes)
    assert made.reserve(job)
    keys = DomainKeys(FORMAT).keys(Domain(), job.chain_hashes)
    made.offer(job, keys, [b""] * count, payload(prompt, count * PAYLOAD))
    return job


def test_pending_blocks_are_limited_but_a_single_batch_is_always_accepted() -> None:
    go_on = threading.Event()
    with node() as manager, saver(address(manager), buffer_bytes=3 * PAYLOAD) as made:
        _hold(manager, go_on)
        offer(made, "a", 4)
        rejected = a_job("b", 1)
        assert not made.reserve(rejected)
        assert made.take_unsaved() == list(rejected.chain_hashes)
        go_on.set()
        assert made.settle(20.0)
        assert made.reserve(a_job("c", 100))
        assert made.stored == 4


def test_reservations_count_until_they_are_released() -> None:
    with node() as manager, saver(address(manager), buffer_bytes=3 * PAYLOAD) as made:
        first, second = a_job("a"), a_job("b")
        assert made.reserve(first)
        assert not made.reserve(second)
        made.release(first)
        assert made.take_unsaved() == [*second.chain_hashes, *first.chain_hashes]
        assert made.reserve(second)
        made.release(second)


def _hold(manager: NodeManager, go_on: threading.Event) -> None:
    """Block the node's puts until the event."""
    allocate = manager.store.allocate

    def later(*given: Any) -> Any:
        assert go_on.wait(60.0)
        return allocate(*given)

    manager.store.allocate = later  # type: ignore[method-assign]


def test_blocks_larger_than_the_nodes_slots_are_reported_as_not_stored() -> None:
    with node(slots={"slot_bytes": 512}) as manager, saver(address(manager)) as made:
        job = offer(made, "a")
        assert made.settle(20.0)
        assert made.take_unsaved() == list(job.chain_hashes)
        assert (made.take_unsaved(), made.stored) == ([], 0)


def test_an_engine_whose_blocks_exceed_every_node_limit_does_not_start() -> None:
    backend = NodeBackend(BackendSettings(address="127.0.0.1:1", keyring=KEYRING), time.monotonic)
    with pytest.raises(ValueError, match="use smaller blocks"):
        BlockSaver(backend, TOKENS, MAX_PAYLOAD_BYTES + 1, 1 << 20)


def test_a_node_that_returns_gets_the_next_blocks() -> None:
    with node() as manager:
        at = address(manager)
    with saver(at) as made:
        lost = offer(made, "a")
        assert made.settle(20.0)
        assert made.take_unsaved() == list(lost.chain_hashes)
        with node(port=int(at.split(":")[1])) as again:
            offer(made, "b")
            assert made.settle(20.0)
            assert (made.take_unsaved(), made.stored) == ([], 2)
            assert again.store.counts.stored == 2


def test_pending_blocks_are_stored_before_closing() -> None:
    with node() as manager:
        with saver(address(manager)) as made:
            for number in range(4):
                offer(made, number, 1)
        assert manager.store.counts.stored == 4


def test_a_context_cache_is_pinned_even_if_its_blocks_are_already_stored() -> None:
    with node() as manager, saver(address(manager)) as made:
        offer(made, "a", 2)
        job = offer(made, "a", 3, hint="context_cache", pin_s=60.0)
        assert made.settle(20.0)
        keys = DomainKeys(FORMAT).keys(Domain(), job.chain_hashes)
        records = [manager.store.catalog.find(key) for key in keys]
        assert [bool(record and record.pinned_until) for record in records] == [True, True, True]
        assert manager.store.counts.stored == 3


def test_the_shared_domain_uses_the_plain_format_keys() -> None:
    (block,) = chain("p", 1)
    assert DomainKeys(FORMAT).keys(Domain(), [block]) == [PayloadKeys(FORMAT).key(block)]


def test_a_key_depends_on_adapter_salt_and_rank() -> None:
    block = chain("p", 1)
    other_rank = PayloadFormat(
        model="tiny",
        weight_revision="1",
        kv_dtype="bfloat16",
        kv_layout="layers 1",
        block_tokens=16,
        tp_rank=1,
        tp_size=2,
    )
    domains = (Domain(), Domain(salt="s"), Domain(lora="s"), Domain("l", "s"))
    keys = [DomainKeys(FORMAT).keys(domain, block)[0] for domain in domains]
    keys.append(DomainKeys(other_rank).keys(Domain(), block)[0])
    assert len(set(keys)) == 5


def test_changing_salts_do_not_grow_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domain_keys, "_MAX_DOMAINS", 3)
    keys, block = DomainKeys(FORMAT), chain("p", 1)
    first = keys.keys(Domain(salt="0"), block)
    for number in range(10):
        keys.keys(Domain(salt=str(number)), block)
    assert len(keys._keys) == 3
    assert keys.keys(Domain(salt="0"), block) == first
