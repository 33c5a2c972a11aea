"""Pages of SGLang's hierarchical cache on nodes: another engine gets the same bytes or computes them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from kvstore.backends.backend import BackendSettings
from kvstore.backends.node_backend import NodeBackend
from kvstore.connector import page_store
from kvstore.connector.page_store import PageStore
from kvstore.keys.payload_key import PayloadFormat, PayloadKeys
from tests.kvstore.connector.engine_blocks import FORMAT, PAYLOAD, chain
from tests.kvstore.connector.test_worker_side import GONE, Clock
from tests.kvstore.kv_blocks import KEYRING, address, node

HASHES = [item.hex() for item in chain("p", 5)]
PAGES = [memoryview(random.Random(item).randbytes(PAYLOAD)) for item in HASHES]


@contextmanager
def pages(at: str, payload_format: PayloadFormat = FORMAT) -> Iterator[PageStore]:
    made = PageStore(NodeBackend(BackendSettings(address=at, keyring=KEYRING, timeout_s=5.0), Clock()), payload_format)
    try:
        yield made
    finally:
        made.close()


def loaded(store: PageStore, hashes: list[str]) -> list[bytes | None]:
    into = [memoryview(bytearray(PAYLOAD)) for _ in hashes]
    return [bytes(page) if whole else None for page, whole in zip(into, store.load(hashes, into), strict=True)]


def test_another_engine_loads_the_stored_pages() -> None:
    with node() as manager, pages(address(manager)) as one, pages(address(manager)) as two:
        assert one.save(HASHES[:3], PAGES[:3]) == [True] * 3
        assert (two.leading(HASHES), two.leading(HASHES[3:])) == (3, 0)
        assert loaded(two, HASHES) == [*map(bytes, PAGES[:3]), None, None]


def test_pages_follow_the_previous_batch_and_are_sent_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_store, "_PIECE_BYTES", 2 * PAYLOAD)
    with node() as manager, pages(address(manager)) as one:
        one.save(HASHES[:2], PAGES[:2])
        assert one.save(HASHES[2:], PAGES[2:], HASHES[1]) == [True] * 3
        assert one.save(HASHES, PAGES) == [True] * 5
        assert manager.store.counts.stored == 5
        keys = [PayloadKeys(FORMAT).key(bytes.fromhex(item)) for item in HASHES]
        facts = [record.facts for key in keys if (record := manager.store.catalog.find(key))]
    assert [item.parent for item in facts] == [b"", *keys[:-1]]
    assert [item.chain_hash.hex() for item in facts] == HASHES


@pytest.mark.parametrize(
    "change",
    [
        {"tp_rank": 1, "tp_size": 2},
        {"tp_size": 2},
        {"kv_dtype": "torch.float8_e4m3fn"},
        {"kv_layout": "page_first"},
        {"weight_revision": "2"},
        {"block_tokens": 64},
    ],
    ids=" ".join,
)
def test_pages_of_another_format_are_not_there(change: dict[str, Any]) -> None:
    other = msgspec.structs.replace(FORMAT, **change)
    with node() as manager, pages(address(manager)) as one, pages(address(manager), other) as two:
        one.save(HASHES, PAGES)
        assert (two.leading(HASHES), loaded(two, HASHES)) == (0, [None] * 5)


def test_a_page_of_another_size_is_not_loaded() -> None:
    with node() as manager, pages(address(manager)) as one:
        one.save(HASHES[:1], [PAGES[0][:500]])
        assert loaded(one, HASHES[:1]) == [None]


def test_a_dead_node_has_no_pages_and_takes_none() -> None:
    with pages(GONE) as one:
        assert (one.leading(HASHES), loaded(one, HASHES)) == (0, [None] * 5)
        assert one.save(HASHES, PAGES) == [False] * 5


def test_a_node_without_room_takes_no_pages_of_that_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_store, "_PIECE_BYTES", 2 * PAYLOAD)
    with node(slots={"dram_slots": 1, "ssd_slots": 1}) as manager, pages(address(manager)) as one:
        assert one.save(HASHES, PAGES) == [False] * 4 + [True]
