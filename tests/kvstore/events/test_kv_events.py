import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstore.events.kv_events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    EventBatch,
    UnreadableEventError,
    decode_batch,
    encode_batch,
)


def test_a_batch_round_trips() -> None:
    batch = EventBatch(
        12.5,
        [
            BlockStored([11, 12], None, [1, 2, 3, 4], 2),
            BlockRemoved([11], "GPU"),
            AllBlocksCleared(),
        ],
        0,
    )
    assert decode_batch(encode_batch(batch)) == batch


def test_events_are_sent_as_maps_with_a_type_and_without_defaults() -> None:
    wire = msgspec.msgpack.decode(encode_batch(EventBatch(1.0, [BlockRemoved([5])], 0)))
    assert wire == [1.0, [{"type": "BlockRemoved", "block_hashes": [5]}], 0]


def test_fields_of_a_real_engine_are_read_and_unknown_ones_ignored() -> None:
    event = {
        "type": "BlockStored", "block_hashes": [11346162695257084044], "parent_block_hash": None,
        "token_ids": [1, 2], "block_size": 2, "lora_id": None, "medium": "GPU", "lora_name": None,
        "extra_keys": [None], "group_idx": 0, "kv_cache_spec_kind": "full_attention", "session_id": "s",
    }  # fmt: skip
    batch = decode_batch(msgspec.msgpack.encode([1.0, [event], 0]))
    known = {"extra_keys": [None], "group_idx": 0, "kv_cache_spec_kind": "full_attention"}
    assert batch.events == [BlockStored([11346162695257084044], None, [1, 2], 2, **known)]  # type: ignore[arg-type]


def test_unknown_event_types_are_skipped_and_others_kept() -> None:
    wire = msgspec.msgpack.encode([1.0, [{"type": "BlockMoved", "to": 3}, {"type": "AllBlocksCleared"}]])
    assert decode_batch(wire).events == [AllBlocksCleared()]


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"<html>",
        msgspec.msgpack.encode({"ts": 1}),
        msgspec.msgpack.encode([1.0, [{"type": "BlockStored", "block_hashes": [1]}], 0]),
        msgspec.msgpack.encode([1.0, [{"no": "type"}], 0]),
        encode_batch(EventBatch(1.0, [BlockStored([1, 2], None, [1, 2, 3], 2)])),
        encode_batch(EventBatch(1.0, [BlockStored([1], None, [], 0)])),
        encode_batch(EventBatch(1.0, [BlockStored([1], None, [-1, 2], 2)])),
        encode_batch(EventBatch(1.0, [BlockRemoved([1] * 65_537)])),
    ],
)
def test_garbage_raises_one_clear_error(payload: bytes) -> None:
    with pytest.raises(UnreadableEventError):
        decode_batch(payload)


@given(st.binary(max_size=200))
def test_no_bytes_raise_another_error(payload: bytes) -> None:
    with contextlib.suppress(UnreadableEventError):
        decode_batch(payload)


def test_token_ids_can_be_missing_only_below_engine_memory() -> None:
    offloaded = BlockStored([1, 2], None, [], 16, medium="CPU")
    assert decode_batch(encode_batch(EventBatch(1.0, [offloaded]))).events == [offloaded]
    for medium in (None, "GPU"):
        with pytest.raises(UnreadableEventError):
            decode_batch(encode_batch(EventBatch(1.0, [BlockStored([1, 2], None, [], 16, medium=medium)])))
