from __future__ import annotations

import random
from typing import Any

import pytest

from kvstore.events.kv_events import BlockRemoved, BlockStored, EventBatch, KvEvent, decode_batch, encode_batch
from kvstore.events.node_blocks import NodeBlock, extra_key, node_blocks, payload_id
from kvstore.node.node_events import kv_events
from kvstore.tiers.block_facts import DRAM, SSD, BlockFacts, Medium
from kvstore.transactions.block_record import BlockChange
from tests.kvstore.kv_blocks import key


def facts(name: object, routing_key: int) -> BlockFacts:
    return BlockFacts(key(name), 100, key((name, "chain")), tokens=16, routing_key=routing_key)


def read(events: list[KvEvent]) -> list[KvEvent]:
    return decode_batch(encode_batch(EventBatch(0.0, events))).events


def test_stored_and_removed_events_identify_a_block_alike() -> None:
    changes = [BlockChange("stored", facts("a", 7), DRAM), BlockChange("removed", facts("a", 7), DRAM)]
    stored, removed = read(kv_events(changes))
    assert isinstance(stored, BlockStored)
    assert isinstance(removed, BlockRemoved)
    assert node_blocks(stored) == node_blocks(removed) == [NodeBlock(7, payload_id(key("a")))]
    assert stored.block_hashes == removed.block_hashes


def test_consecutive_changes_of_one_kind_and_medium_share_an_event() -> None:
    changes = [BlockChange("stored", facts(name, name + 1), medium) for medium in (DRAM, SSD) for name in range(3)]
    events = read(kv_events(changes))
    assert [(len(event.block_hashes), event.medium) for event in events if isinstance(event, BlockStored)] == [
        (3, DRAM),
        (3, SSD),
    ]


def test_a_block_without_a_routing_key_is_identified_by_its_hash_only() -> None:
    [event] = read(kv_events([BlockChange("stored", facts(name, name), DRAM) for name in (0, 1)]))
    [unnamed] = read(kv_events([BlockChange("stored", facts(0, 0), DRAM)]))
    assert isinstance(event, BlockStored)
    assert len(event.block_hashes) == 2
    assert [node_block.routing_key for node_block in node_blocks(event)] == [1]
    assert isinstance(unnamed, BlockStored)
    assert unnamed.extra_keys is None


@pytest.mark.parametrize(
    "extra",
    [
        None,
        ["cache_salt", "s"],
        ["headway", 0, 1],
        ["headway", "7", 1],
        ["headway", 7],
        ["headway", 7, -1],
        ["headway", 1 << 64, 1],
        ["headway", True, 1],
    ],
)
def test_foreign_and_malformed_extra_keys_identify_no_node_block(extra: Any) -> None:
    assert node_blocks(BlockStored([1], None, [], 16, medium="CPU", extra_keys=[extra])) == []


def test_a_listener_that_applies_changes_ends_with_the_nodes_contents() -> None:
    rng = random.Random(5)
    held: set[tuple[int, Medium]] = set()
    listed: set[tuple[int, str | None]] = set()
    for _ in range(500):
        name, medium = rng.randrange(20), rng.choice((DRAM, SSD))
        there = (name, medium) in held
        change = BlockChange("removed" if there else "stored", facts(name, name + 1), medium)
        held ^= {(name, medium)}
        for event in read(kv_events([change] * rng.randint(1, 3))):
            assert isinstance(event, BlockStored | BlockRemoved)
            for block in node_blocks(event):
                (listed.add if isinstance(event, BlockStored) else listed.discard)(
                    (block.routing_key - 1, event.medium)
                )
        assert listed == held


def test_a_missing_routing_key_is_not_sent_as_key_0() -> None:
    assert extra_key(0, key("a")) is None
    assert extra_key((1 << 64) - 1, key("a")) == ["headway", (1 << 64) - 1, payload_id(key("a"))]
