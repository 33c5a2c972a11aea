"""Bus messages are decoded whole and within their limit, or rejected with the reason.

Engine reports: the wire format, and what they state about serving.
"""

from __future__ import annotations

import msgspec
import pytest

from gateway.contracts.engine_report import EngineReport, decode_report, encode_report, load_topic
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


def report(*, reachable: bool = True, healthy: bool = True, readable: bool = True, reason: str = "") -> EngineReport:
    return EngineReport(engine_id="e1", at=1.0, reachable=reachable, healthy=healthy, readable=readable, reason=reason)


def test_a_report_round_trips() -> None:
    sent = report(healthy=False, reason="health answered 503")
    assert decode_report(encode_report(sent)) == sent


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x93\x01\x02\x03", b"\x81\xa1a\x01", b"{}"])
def test_malformed_reports_are_rejected_as_unreadable(data: bytes) -> None:
    with pytest.raises(UnreadableMessageError):
        decode_report(data)


def test_an_engine_with_unreadable_metrics_still_serves() -> None:
    assert report().serves
    assert report(healthy=False, readable=False, reason="metrics are unreadable: …").serves
    assert not report(healthy=False, reason="health answered 503").serves
    assert not report(reachable=False, healthy=False, readable=False, reason="connection refused").serves


def test_each_engine_has_its_own_topic() -> None:
    assert load_topic("e1") == "load/e1"
