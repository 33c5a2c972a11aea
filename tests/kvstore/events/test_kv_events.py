"""Every wire format of KV events, as bytes built from the documented shapes."""

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstore.events.engine_block_map import EngineBlockMap
from kvstore.events.kv_events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    EventBatch,
    PairedTokensError,
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


TS, H1, H2, SIGNED = 1795159808.43, 11346162695257084044, 2**64 - 1, -(2**63)
DIGEST = bytes(range(32))
VLLM_0_23: list[Any] = [
    "BlockStored", [H1, H2], None, [1, 2, 3, 4], 2, None, "GPU", None, [None, None], 0, "full_attention", None,
]  # fmt: skip
PLAIN = BlockStored(
    [H1, H2], None, [1, 2, 3, 4], 2, extra_keys=[None, None], group_idx=0, kv_cache_spec_kind="full_attention"
)


def wire(*events: Any, rank: int | None = 0) -> bytes:
    return msgspec.msgpack.encode([TS, list(events), rank])


def only(payload: bytes) -> Any:
    (event,) = decode_batch(payload).events
    return event


def test_vllm_up_to_0_23_sends_arrays() -> None:
    assert decode_batch(wire(VLLM_0_23, rank=1)) == EventBatch(TS, [PLAIN], 1)


@pytest.mark.parametrize("length", range(5, 13))
def test_missing_trailing_fields_have_their_defaults(length: int) -> None:
    event = only(wire(VLLM_0_23[:length]))
    kind = "full_attention" if length >= 11 else None
    assert event.extra_keys == (PLAIN.extra_keys if length >= 9 else None)
    assert (event.group_idx, event.kv_cache_spec_kind) == (0 if length >= 10 else None, kind)
    assert (event.block_hashes, event.block_size, event.medium) == ([H1, H2], 2, "GPU")


def test_extra_fields_are_ignored() -> None:
    assert only(wire([*VLLM_0_23, {"later": 1}, [1]])) == PLAIN


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (["BlockRemoved", [H1]], BlockRemoved([H1])),
        (["BlockRemoved", [H1], "CPU"], BlockRemoved([H1], "CPU")),
        (["BlockRemoved", [SIGNED], None, 3], BlockRemoved([SIGNED], None, group_idx=3)),
        (["AllBlocksCleared"], AllBlocksCleared()),
        (["AllBlocksCleared", "GPU"], AllBlocksCleared()),
    ],
)
def test_other_events_are_read_from_arrays(event: list[Any], expected: Any) -> None:
    assert only(wire(event)) == expected


def test_a_batch_without_rank_and_an_empty_batch_are_read() -> None:
    assert decode_batch(msgspec.msgpack.encode([TS, [VLLM_0_23]])).data_parallel_rank is None
    assert decode_batch(msgspec.msgpack.encode([TS, []])).events == []


def test_sglang_sends_signed_hashes_and_omits_trailing_fields() -> None:
    event = only(wire(["BlockStored", [SIGNED], SIGNED + 1, [1, 2], 2, None, "CPU_PINNED"]))
    assert event == BlockStored([SIGNED], SIGNED + 1, [1, 2], 2, medium="CPU_PINNED")


def test_sglang_from_0_5_18_sends_metadata_in_the_adapter_position() -> None:
    metadata = {"cache_salt": "s", "session_id": "abc", "later": [1]}
    event = only(wire(["BlockStored", [SIGNED], None, [1, 2], 2, None, "GPU", metadata]))
    assert event == BlockStored([SIGNED], None, [1, 2], 2, cache_salt="s")


def test_current_sglang_sends_maps_with_signed_hashes() -> None:
    stored = {
        "type": "BlockStored", "block_hashes": [SIGNED], "parent_block_hash": -5, "token_ids": [1, 2], "block_size": 2,
        "lora_id": None, "medium": "DISK", "cache_salt": "s", "session_id": "x",
    }  # fmt: skip
    assert only(wire(stored)) == BlockStored([SIGNED], -5, [1, 2], 2, medium="DISK", cache_salt="s")


def test_adapters_are_identified_by_name_or_only_by_number() -> None:
    assert only(wire(["BlockStored", [1], None, [1], 1, 7, "GPU", "sql"])).lora_name == "sql"
    assert only(wire(["BlockStored", [1], None, [1], 1, 7])).lora_id == 7
    by_number = {"type": "BlockStored", "block_hashes": [1], "parent_block_hash": None, "token_ids": [1]}
    assert only(wire({**by_number, "block_size": 1, "lora_id": 7})).lora_id == 7


def test_hashes_can_be_bytes_in_maps_and_arrays() -> None:
    event = only(wire(["BlockStored", [DIGEST], DIGEST[::-1], [1, 2], 2]))
    assert event.block_hashes == [DIGEST]
    assert event.parent_block_hash == DIGEST[::-1]
    assert only(wire({"type": "BlockRemoved", "block_hashes": [DIGEST], "medium": "GPU"})).block_hashes == [DIGEST]


def test_maps_and_arrays_can_be_mixed_and_unknown_types_are_skipped() -> None:
    batch = decode_batch(
        wire(
            VLLM_0_23,
            {"type": "BlockRemoved", "block_hashes": [H1]},
            ["BlockTransferred", [H1], {"to": "CPU"}],
            {"type": "BlockMoved", "to": 1},
            ["BlockRemoved", [H2]],
        )
    )
    assert batch.events == [PLAIN, BlockRemoved([H1]), BlockRemoved([H2])]


def test_large_arrays_are_distinguished_from_maps() -> None:
    many = [VLLM_0_23 + [None] * 70_000, {"type": "AllBlocksCleared"}]
    assert decode_batch(wire(*many)).events == [PLAIN, AllBlocksCleared()]
    assert decode_batch(wire(VLLM_0_23 + [None] * 8, {"type": "AllBlocksCleared"})).events[0] == PLAIN


@pytest.mark.parametrize(
    "event",
    [
        ["BlockStored", [SIGNED], None, [[1, 2], [2, 3]], 2, None, "GPU"],
        {"type": "BlockStored", "block_hashes": [1], "parent_block_hash": None, "token_ids": [[1, 2]], "block_size": 1},
    ],
)
def test_token_pairs_are_rejected_by_name(event: Any) -> None:
    with pytest.raises(PairedTokensError, match="EAGLE"):
        decode_batch(wire(event))


@pytest.mark.parametrize(
    "payload",
    [
        wire([]),
        wire(["BlockStored"]),
        wire(VLLM_0_23[:4]),
        wire(["BlockStored", "x", None, [1], 1]),
        wire(["BlockStored", [1.5], None, [1], 1]),
        wire(["BlockStored", [1], None, ["a"], 1]),
        wire(["BlockStored", [1], None, [1, 2, 3], 1]),
        wire(["BlockStored", [1], None, [-1], 1]),
        wire(["BlockStored", [1], None, [1 << 32], 1]),
        wire(["BlockStored", [1], None, [1], 1, None, "GPU", 5]),
        wire(["BlockStored", [1], None, [1], 1, None, "GPU", {"cache_salt": 5}]),
        wire(["BlockRemoved"]),
        wire([5, [1]]),
        wire(5),
        wire(None),
        wire(["BlockRemoved", [1] * 65_537]),
        wire(*[["AllBlocksCleared"]] * 65_537),
        wire(["x", *[["y"]] * 3])[:-1],
        b"\x93\xcb" + b"\x00" * 8 + b"\x91" + b"\x91" * 100_000,
    ],
)
def test_malformed_arrays_raise_one_clear_error(payload: bytes) -> None:
    with pytest.raises(UnreadableEventError):
        decode_batch(payload)


def test_maps_and_arrays_produce_the_same_keys() -> None:
    maps, arrays = EngineBlockMap(), EngineBlockMap()
    named = {"type": "BlockStored", "block_hashes": [H1, H2], "parent_block_hash": None, "token_ids": [1, 2, 3, 4]}
    assert maps.stored(only(wire({**named, "block_size": 2})), 7) == arrays.stored(only(wire(VLLM_0_23)), 7)
    child = ["BlockStored", [SIGNED], H2, [5, 6], 2]
    assert len(arrays.stored(only(wire(child)), 7)) == 1
    assert arrays.orphans == 0
    assert len(arrays.removed(only(wire(["BlockRemoved", [SIGNED]])))) == 1


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.binary(max_size=9)
    | st.text(max_size=9) | st.sampled_from(["BlockStored", "BlockRemoved", "AllBlocksCleared"]),
    lambda inner: st.lists(inner, max_size=13) | st.dictionaries(st.sampled_from(["type", "token_ids"]), inner),
    max_leaves=30,
)  # fmt: skip


@given(st.lists(values, max_size=4))
def test_no_structure_raises_another_error(events: list[Any]) -> None:
    with contextlib.suppress(UnreadableEventError):
        decode_batch(wire(*events))


@given(st.sampled_from([wire(VLLM_0_23), wire(["BlockRemoved", [DIGEST], "GPU", 0], {"type": "x"})]), st.data())
def test_no_damaged_bytes_raise_another_error(payload: bytes, data: st.DataObject) -> None:
    damaged = bytearray(payload)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(UnreadableEventError):
        decode_batch(bytes(damaged[: data.draw(st.integers(0, len(damaged)))]))
