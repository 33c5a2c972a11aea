from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstore.transfer import frames
from kvstore.transfer.frames import (
    HEAD_BYTES,
    MAX_BODY_BYTES,
    MAX_GREETING_BYTES,
    MAX_KEYS,
    MAX_PAYLOAD_BYTES,
    Allocate,
    Blocks,
    Challenge,
    Done,
    FrameError,
    Get,
    Held,
    Hello,
    Message,
    PageOf,
    Put,
    TransferRejected,
    Welcome,
    Write,
    decode,
    decode_head,
    encode,
)
from tests.fuzz.mutations import near
from tests.kvstore.kv_blocks import facts, key

MESSAGES: list[tuple[Message, int]] = [
    (Challenge(bytes(32)), 0),
    (Hello(bytes(32), bytes(32)), 0),
    (Welcome(bytes(32), "n1", 7), 0),
    (Get([key("a"), key("b")], 1 << 20, 1), 0),
    (Put([facts("a"), facts("b", "a")], "context_cache", 60.0), 2000),
    (Allocate("t", [key("a")], [facts("b")], 10.0), 0),
    (Write("t", [key("b")], [bytes(16)]), 1000),
    (Blocks([1000, -1], [bytes(16), b""]), 1000),
    (Held([(1000, ["CPU", "STORAGE"]), (-1, [])]), 0),
    (PageOf([(facts("a"), ["CPU"])], 4, 9), 0),
    (Done(2, [key("a")]), 0),
    (TransferRejected("locked", [key("a")]), 0),
]
BODIES = [msgspec.msgpack.encode(message) for message, _ in MESSAGES]


@pytest.mark.parametrize(("message", "payload_bytes"), MESSAGES, ids=lambda item: type(item).__name__)
def test_a_message_round_trips(message: Message, payload_bytes: int) -> None:
    frame = encode(message, payload_bytes)
    body_bytes, announced = decode_head(frame[:HEAD_BYTES])
    assert (len(frame), announced) == (HEAD_BYTES + body_bytes, payload_bytes)
    assert decode(frame[HEAD_BYTES:], announced) == message


@given(st.binary(max_size=64) | near(BODIES), st.integers(0, 4000))
def test_any_peer_input_is_a_valid_message_or_an_error(body: bytes, payload_bytes: int) -> None:
    with contextlib.suppress(FrameError):
        message = decode(body, payload_bytes)
        assert len(getattr(message, "keys", [])) <= MAX_KEYS
        if isinstance(message, Put):
            assert sum(block.length for block in message.blocks) == payload_bytes
        if isinstance(message, Blocks):
            assert sum(length for length in message.lengths if length > 0) == payload_bytes


@given(st.binary(max_size=HEAD_BYTES) | near([encode(message)[:HEAD_BYTES] for message, _ in MESSAGES]))
def test_any_head_stays_within_the_limits(head: bytes) -> None:
    with contextlib.suppress(FrameError):
        body_bytes, payload_bytes = decode_head(head)
        assert body_bytes <= MAX_BODY_BYTES
        assert payload_bytes <= MAX_PAYLOAD_BYTES


def test_before_the_greeting_messages_are_limited_to_a_small_size() -> None:
    head = encode(Challenge(bytes(MAX_GREETING_BYTES)))[:HEAD_BYTES]
    with pytest.raises(FrameError, match="over the limits"):
        decode_head(head, greeting=True)
    with pytest.raises(FrameError, match="over the limits"):
        decode_head(encode(Challenge(b""), 1)[:HEAD_BYTES], greeting=True)


@pytest.mark.parametrize(
    ("message", "payload_bytes"),
    [
        (Put([facts("a")]), 999),
        (Get([key("a")], 1), 1),
        (Get([b"short"], 1), 0),
        (Get([key("a")] * (MAX_KEYS + 1), 1), 0),
        (Blocks([5], []), 5),
        (Write("t", [key("a")], [b"short"]), 1000),
        (Put([facts("a", length=1), facts("b", length=1)] * 2049), 4098),
        (Put([msgspec.structs.replace(facts("a"), length=0)]), 0),
        (Put([msgspec.structs.replace(facts("a"), parent=key("a"))]), 1000),
        (Put([msgspec.structs.replace(facts("a"), tenant="x" * 65)]), 1000),
    ],
)
def test_inconsistent_messages_are_rejected(message: Message, payload_bytes: int) -> None:
    with pytest.raises(FrameError):
        decode(msgspec.msgpack.encode(message), payload_bytes)


def test_messages_that_the_other_side_would_reject_are_not_sent() -> None:
    with pytest.raises(FrameError):
        encode(Done(0, [bytes(32)] * (frames.MAX_BODY_BYTES // 32)))
    with pytest.raises(FrameError):
        encode(Done(), MAX_PAYLOAD_BYTES + 1)
