"""An unreadable event, or one of an unknown type, is skipped without losing its batch."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kvstore.events.kv_events import BlockRemoved, BlockStored, UnreadableEventError, decode_batch, in_engine_memory

GOOD = {"type": "BlockStored", "block_hashes": [1], "parent_block_hash": None, "token_ids": [1, 2], "block_size": 2}
ODD: list[Any] = [
    {**GOOD, "token_ids": [1, 2, 3]},
    {**GOOD, "lora_id": {"new": "shape"}},
    {**GOOD, "kv_cache_spec_kind": 5},
    {**GOOD, "token_ids": [-1, 2]},
    {"type": "BlockRemoved"},
    {"type": "BlockMoved", "block_hashes": [1], "to": "CPU"},
    ["BlockTransferred", [1], "CPU"],
    ["BlockStored", [1], None],
    {"no": "type"},
    [5],
    5,
    None,
]


def wire(*events: Any) -> bytes:
    return msgspec.msgpack.encode([1.0, list(events), 0])


@pytest.mark.parametrize("odd", ODD)
def test_other_events_of_a_batch_are_kept(odd: Any) -> None:
    skipped: list[str] = []
    batch = decode_batch(wire(GOOD, odd, {"type": "BlockRemoved", "block_hashes": [2]}), skipped)
    assert batch.events == [BlockStored([1], None, [1, 2], 2), BlockRemoved([2])]
    assert len(skipped) == 1


def test_unknown_types_that_concern_no_blocks_are_not_counted_as_skipped() -> None:
    skipped: list[str] = []
    assert decode_batch(wire(GOOD, {"type": "SessionEnded"}), skipped).events == [BlockStored([1], None, [1, 2], 2)]
    assert skipped == []


@pytest.mark.parametrize("payload", [b"", b"<html>", msgspec.msgpack.encode({"ts": 1}), wire(GOOD)[:-1]])
def test_bytes_that_are_not_a_batch_still_raise(payload: bytes) -> None:
    with pytest.raises(UnreadableEventError):
        decode_batch(payload, [])


def test_sparse_groups_list_fewer_hashes_than_their_tokens_fill() -> None:
    sparse = {**GOOD, "token_ids": list(range(8)), "group_idx": 1, "kv_cache_spec_kind": "mamba"}
    skipped: list[str] = []
    assert len(decode_batch(wire(sparse, {**sparse, "kv_cache_spec_kind": "full_attention"}), skipped).events) == 1
    assert len(skipped) == 1


@pytest.mark.parametrize(
    ("fields", "in_memory"),
    [
        ({}, True),
        ({"medium": None}, True),
        ({"medium": "CPU_PINNED"}, False),
        ({"medium": "quantum"}, False),
        ({"medium": "GPU", "locality": "LOCAL"}, True),
        ({"medium": "GPU", "locality": "REMOTE"}, False),
    ],
)
def test_only_local_engine_media_count_as_engine_memory(fields: dict[str, Any], in_memory: bool) -> None:
    for event in (GOOD, {"type": "BlockRemoved", "block_hashes": [1]}):
        (read,) = decode_batch(wire({**event, **fields})).events
        assert isinstance(read, BlockStored | BlockRemoved)
        assert in_engine_memory(read) is in_memory
