"""Guarantees of every bus: topics, prefixes, last values, isolation of subscribers, threads."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

from gateway.bus.bus import Bus, BusAwayError, InProcessBus
from kvstore.keys.keyring import Keyring
from tests.patience import wait_until
from tests.private_redis import PrivateRedis, patient_bus


@pytest.fixture(params=["in process", "over a server", "over a server that is away"])
def bus(request: pytest.FixtureRequest, bus_server: PrivateRedis) -> Iterator[Bus]:
    if request.param == "in process":
        yield InProcessBus()
        return
    is_away = request.param == "over a server that is away"
    url = "redis://127.0.0.1:1/0" if is_away else bus_server.url
    bus = patient_bus(url, Keyring.of(f"test:{request.node.name}".encode()))
    yield bus
    bus.close()


def test_a_bus_keeps_the_last_value_of_a_topic(bus: Bus) -> None:
    assert bus.latest("snapshot") is None
    bus.publish("snapshot", b"1")
    bus.publish("snapshot", b"2")
    assert bus.latest("snapshot") == b"2"


def test_a_bus_delivers_the_last_value_on_subscribing(bus: Bus) -> None:
    bus.publish("load/a", b"1")
    bus.publish("load/b", b"2")
    bus.publish("loads", b"3")
    received: list[tuple[str, bytes]] = []
    bus.subscribe("load/", lambda topic, value: received.append((topic, value)))
    assert sorted(received) == [("load/a", b"1"), ("load/b", b"2")]


def test_a_prefix_subscription_receives_only_topics_below_it(bus: Bus) -> None:
    received: list[str] = []
    bus.subscribe("load/", lambda topic, _: received.append(topic))
    for topic in ("load/a", "load/a/b", "loads", "snapshot", "load/"):
        bus.publish(topic, b"")
    assert received == ["load/a", "load/a/b", "load/"]


def test_a_stream_topic_keeps_no_last_value(bus: Bus) -> None:
    received: list[bytes] = []
    bus.subscribe("records", lambda _, value: received.append(value))
    bus.append("records", b"1")
    assert received == [b"1"]
    assert bus.latest("records") is None


def test_a_subscriber_that_raises_does_not_affect_others(bus: Bus, caplog: pytest.LogCaptureFixture) -> None:
    received: list[bytes] = []

    def broken(_topic: str, _value: bytes) -> None:
        raise RuntimeError("boom")

    bus.subscribe("fleet", broken)
    bus.subscribe("fleet", lambda _, value: received.append(value))
    with caplog.at_level(logging.ERROR):
        bus.publish("fleet", b"1")
    assert received == [b"1"]
    assert "a subscriber of fleet failed" in caplog.text


def test_unsubscribing_ends_delivery_and_can_be_repeated(bus: Bus) -> None:
    received: list[bytes] = []
    unsubscribe = bus.subscribe("fleet", lambda _, value: received.append(value))
    unsubscribe()
    unsubscribe()
    bus.publish("fleet", b"1")
    assert received == []


def test_a_callback_can_publish_and_subscribe(bus: Bus) -> None:
    received: list[bytes] = []

    def relay(_topic: str, value: bytes) -> None:
        bus.subscribe("second", lambda _, late: received.append(late))
        bus.publish("second", value)

    bus.subscribe("first", relay)
    bus.publish("first", b"1")
    assert received == [b"1"]


def test_concurrent_threads_lose_no_message(bus: Bus) -> None:
    received: list[bytes] = []
    bus.subscribe("t/", lambda _, value: received.append(value))

    def publish(number: int) -> None:
        for count in range(200):
            bus.publish(f"t/{number}", f"{number}:{count}".encode())

    threads = [threading.Thread(target=publish, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(received) == len(set(received)) == 8 * 200
    assert all(bus.latest(f"t/{number}") == f"{number}:199".encode() for number in range(8))


def test_a_notification_reaches_current_subscribers_and_returns_their_number(
    bus: Bus, request: pytest.FixtureRequest
) -> None:
    received: list[bytes] = []
    assert bus.latest("told") is None, "connected, or known to be away"
    bus.subscribe("told", lambda _, value: received.append(value))
    count = bus.notify("told", b"1")
    assert received == [b"1"]
    assert bus.latest("told") is None
    if "away" in request.node.name:
        assert isinstance(count.exception(), BusAwayError)
        assert isinstance(bus.claim("name", "a").exception(), BusAwayError)
        return
    assert count.result(5) == 1
    assert bus.notify("nobody listens", b"2").result(5) == 0


def test_the_first_claimant_of_a_name_holds_it_until_replaced(bus: Bus, request: pytest.FixtureRequest) -> None:
    assert bus.latest("told") is None, "connected, or known to be away"
    if "away" in request.node.name:
        return
    assert [bus.claim("name", holder).result(5) for holder in ("a", "b", "a")] == ["a", "a", "a"]
    assert bus.claim("name", "c", instead_of="b").result(5) == "a"
    assert bus.claim("name", "b", instead_of="a").result(5) == "b"
    assert bus.claim("other", "c").result(5) == "c"


def test_a_claim_expires_unless_its_holder_renews_it(bus: Bus, request: pytest.FixtureRequest) -> None:
    assert bus.latest("told") is None, "connected, or known to be away"
    if "away" in request.node.name:
        return
    assert bus.claim("lease", "a", seconds=30).result(5) == "a"
    assert bus.claim("lease", "b", seconds=30).result(5) == "a"
    # Its holder may shorten it, as it may lengthen it.
    assert bus.claim("lease", "a", instead_of="a", seconds=0.01).result(5) == "a"
    wait_until(lambda: bus.claim("lease", "b", seconds=30).result(5) == "b", "the claim does not end")
