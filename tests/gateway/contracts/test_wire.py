"""Bus messages are decoded whole and within their limit, or rejected with the reason."""

from __future__ import annotations

import msgspec
import pytest

from gateway.contracts.wire import UnreadableMessageError, WireForm


class Note(msgspec.Struct, frozen=True):
    text: str
    count: int = 0


NOTE = WireForm(Note, "a note", limit=64)


def test_a_message_round_trips() -> None:
    assert NOTE.decode(NOTE.encode(Note("x", 3))) == Note("x", 3)


def test_a_message_at_the_limit_is_accepted_and_one_byte_more_is_rejected() -> None:
    overhead = len(NOTE.encode(Note("x" * 40))) - 40
    at_the_limit = Note("x" * (64 - overhead))
    assert len(NOTE.encode(at_the_limit)) == 64
    assert NOTE.decode(NOTE.encode(at_the_limit)) == at_the_limit
    with pytest.raises(UnreadableMessageError, match="a note of 65 bytes is over the limit of 64"):
        NOTE.decode(NOTE.encode(Note(at_the_limit.text + "x")))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "truncated"),
        (b"\xc1", "invalid opcode"),
        (NOTE.encode(Note("x"))[:-1], "truncated"),
        (NOTE.encode(Note("x")) + b"\x00", "trailing"),
        (msgspec.msgpack.encode({"text": 1}), r"Expected `str`, got `int` - at `\$.text`"),
        (msgspec.msgpack.encode({"count": 1}), "missing required field `text`"),
        (b"\x81\xa4text\xa2\xff\xff", "utf-8"),
    ],
)
def test_malformed_messages_are_rejected_with_the_reason(data: bytes, why: str) -> None:
    with pytest.raises(UnreadableMessageError, match=f"not a note: .*{why}"):
        NOTE.decode(data)


def test_deeply_nested_messages_are_rejected() -> None:
    deep = WireForm(list, "a list", limit=1 << 20)
    with pytest.raises(UnreadableMessageError, match=r"not a list: .*recursion"):
        deep.decode(b"\x91" * 100_000)
