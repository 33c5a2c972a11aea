"""Uses of keys are told in batches, each once, and nothing else is taken for them."""

from __future__ import annotations

import asyncio
import contextlib

import msgspec
import pytest

from gateway.bus.bus import InProcessBus
from gateway.contracts.wire import UnreadableMessageError
from gateway.reports.key_usage import MAX_KEYS, TOPIC, KeyUsage, KeyUses, decode_uses


@pytest.fixture
def heard() -> tuple[InProcessBus, list[KeyUses]]:
    bus, heard = InProcessBus(), []
    bus.subscribe(TOPIC, lambda _topic, value: heard.append(decode_uses(value)))
    return bus, heard


def test_the_last_use_of_each_key_is_told_for_a_minute(heard: tuple[InProcessBus, list[KeyUses]]) -> None:
    bus, messages = heard
    now = [1000.0]
    usage = KeyUsage(bus, 60.0, lambda: now[0])
    usage.tell()
    usage.note("a", 990.0)
    usage.note("b", 991.0)
    usage.note("a", 1000.0)
    usage.tell()
    now[0] = 1052.0
    usage.tell()
    now[0] = 1060.0
    usage.tell()
    assert [message.at for message in messages] == [{"a": 1000.0, "b": 991.0}, {"a": 1000.0}]


async def test_it_tells_every_interval_and_what_is_left_at_the_end(
    heard: tuple[InProcessBus, list[KeyUses]],
) -> None:
    bus, messages = heard
    usage = KeyUsage(bus, 0.01, lambda: 10.0)
    usage.note("a", 1.0)
    running = asyncio.create_task(usage.run())
    async with asyncio.timeout(5):
        while not messages:
            await asyncio.sleep(0.005)
    usage.note("b", 2.0)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    assert {key for message in messages for key in message.at} == {"a", "b"}


@pytest.mark.parametrize(
    "data",
    [b"", b"\xff", msgspec.msgpack.encode([1]), msgspec.msgpack.encode({"at": {"a": "now"}})],
)
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(UnreadableMessageError):
        decode_uses(data)


def test_more_keys_than_can_be_are_refused() -> None:
    with pytest.raises(UnreadableMessageError, match="more than"):
        decode_uses(msgspec.msgpack.encode({"at": {str(number): 0.0 for number in range(MAX_KEYS + 1)}}))
