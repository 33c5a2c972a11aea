"""Key uses are reported in batches, each once; malformed reports are rejected."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest

from gateway.base.settings import GatewaySettings
from gateway.bus.bus import InProcessBus
from gateway.contracts.wire import UnreadableMessageError
from gateway.reports.key_usage import MAX_KEYS, TOPIC, KeyLastUses, KeyUsage, decode_uses
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import served
from tests.patience import until


@pytest.fixture
def bus_with_uses() -> tuple[InProcessBus, list[KeyLastUses]]:
    bus, received = InProcessBus(), []
    bus.subscribe(TOPIC, lambda _topic, value: received.append(decode_uses(value)))
    return bus, received


def test_the_last_use_of_each_key_is_reported_for_a_minute(
    bus_with_uses: tuple[InProcessBus, list[KeyLastUses]],
) -> None:
    bus, messages = bus_with_uses
    now = [1000.0]
    usage = KeyUsage(bus, lambda: now[0])
    usage.report()
    usage.note("a", 990.0)
    usage.note("b", 991.0)
    usage.note("a", 1000.0)
    usage.report()
    now[0] = 1052.0
    usage.report()
    now[0] = 1060.0
    usage.report()
    assert [message.at for message in messages] == [{"a": 1000.0, "b": 991.0}, {"a": 1000.0}]


async def test_a_gateway_reports_every_interval_and_remaining_uses_at_the_end(tmp_path: Path) -> None:
    settings = GatewaySettings(key_usage_interval_s=0.01)
    messages: list[KeyLastUses] = []
    async with ScriptedEngine() as engine, served([engine.url], tmp_path, gateway_settings=settings) as gateway:
        gateway.gateway._bus.subscribe(TOPIC, lambda _topic, value: messages.append(decode_uses(value)))
        usage = gateway.gateway.key_usage
        usage.note("a", time.time())
        await until(lambda: messages)
        usage.note("b", time.time())
    assert {"a", "b"} <= {key for message in messages for key in message.at}


@pytest.mark.parametrize(
    "data",
    [b"", b"\xff", msgspec.msgpack.encode([1]), msgspec.msgpack.encode({"at": {"a": "now"}})],
)
def test_malformed_reports_are_rejected(data: bytes) -> None:
    with pytest.raises(UnreadableMessageError):
        decode_uses(data)


def test_an_impossible_number_of_keys_is_rejected() -> None:
    with pytest.raises(UnreadableMessageError, match="more than"):
        decode_uses(msgspec.msgpack.encode({"at": {str(number): 0.0 for number in range(MAX_KEYS + 1)}}))
