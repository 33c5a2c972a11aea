"""The bus between processes over a server, including the loss of the server."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from gateway.bus.bus_frame import Frame, FrameSeal
from gateway.bus.redis_bus import RedisBus, RedisBusSettings
from gateway.bus.redis_link import LinkSettings
from gateway.bus.redis_scripts import BusNames, installation_prefix
from gateway.bus.redis_session import RedisSession
from kvstore.keys.keyring import Keyring
from tests.patience import PATIENCE_S, wait_until
from tests.private_redis import PrivateRedis, private_bus

SECRET = b"of these tests: "
KEYRING = Keyring.of(SECRET)
FLOOD = 5000
QUICK = RedisBusSettings(link=LinkSettings(compare_s=0.3, answer_s=0.5))
Made = Callable[..., RedisBus]


@pytest.fixture(scope="module")
def server() -> Iterator[PrivateRedis]:
    with private_bus() as running:
        yield running


@pytest.fixture
def made(server: PrivateRedis, request: pytest.FixtureRequest) -> Iterator[Made]:
    """Return a factory of bus clients for one more process."""
    buses: list[RedisBus] = []
    keyring = keyring_of(request.node.name)

    def make(settings: RedisBusSettings = QUICK, **more: Any) -> RedisBus:
        buses.append(RedisBus(server.url, more.pop("keyring", keyring), settings, **more))
        return buses[-1]

    yield make
    for bus in buses:
        bus.close()


def keyring_of(test: str) -> Keyring:
    """Return the secret of this test's installation."""
    return Keyring.of(SECRET + test.encode())


def names_of(test: str) -> BusNames:
    return BusNames(installation_prefix(keyring_of(test).used))


def received_by(bus: RedisBus, topic: str) -> list[tuple[str, bytes]]:
    received: list[tuple[str, bytes]] = []
    bus.subscribe(topic, lambda name, value: received.append((name, value)))
    return received


def test_another_process_receives_values_and_entries(made: Made) -> None:
    one, two = made(), made()
    received = received_by(two, "load/")
    one.publish("load/a", b"1")
    one.append("load/stream", b"entry")
    wait_until(lambda: len(received) == 2)
    assert sorted(received) == [("load/a", b"1"), ("load/stream", b"entry")]
    assert two.latest("load/stream") is None


def test_a_late_subscriber_gets_the_last_value_before_subscribe_returns(made: Made) -> None:
    one = made()
    for number in range(50):
        one.publish("snapshot", b"%d" % number)
    wait_until(lambda: made().latest("snapshot") == b"49")
    assert received_by(made(), "snapshot") == [("snapshot", b"49")]


def test_no_subscriber_gets_an_older_value_after_a_newer_one(made: Made) -> None:
    writers = [made() for _ in range(3)]
    readers = [received_by(made(), "t"), received_by(made(), "t")]

    def write(writer: RedisBus, name: bytes) -> None:
        for number in range(100):
            writer.publish("t", b"%s%03d" % (name, number))

    threads = [threading.Thread(target=write, args=(bus, b"abc"[n : n + 1])) for n, bus in enumerate(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wait_until(lambda: all(readers))
    wait_until(lambda: len({bus.latest("t") for bus in writers} | {reader[-1][1] for reader in readers}) == 1)
    for reader in readers:
        for name in (b"a", b"b", b"c"):
            of_one = [value for _, value in reader if value.startswith(name)]
            assert of_one == sorted(of_one)


def test_the_later_value_wins_despite_its_publishers_slow_clock(made: Made) -> None:
    fast, slow = made(clock=lambda: time.time() + 3600), made(clock=lambda: time.time() - 3600)
    reader = received_by(made(), "t")
    fast.publish("t", b"first")
    wait_until(lambda: reader[-1:] == [("t", b"first")])
    slow.publish("t", b"second")
    wait_until(lambda: reader[-1:] == [("t", b"second")])
    wait_until(lambda: fast.latest("t") == b"second")
    assert slow.latest("t") == b"second"


def test_installations_on_one_server_are_isolated(made: Made) -> None:
    one, other = made(keyring=Keyring.of(b"one")), made(keyring=Keyring.of(b"other"))
    received = received_by(other, "t")
    one.publish("t", b"1")
    wait_until(lambda: one._link.idle)
    assert made(keyring=Keyring.of(b"one")).latest("t") == b"1"
    assert other.latest("t") is None
    assert received == []
    assert "one" not in installation_prefix(Keyring.of(b"one").used)


def test_special_pattern_characters_are_literal(made: Made) -> None:
    one, two = made(), made()
    received = received_by(two, "a[b]*?\\/")
    one.publish("a[b]*?\\/x", b"1")
    one.publish("abz/x", b"2")
    wait_until(lambda: bool(received))
    time.sleep(0.05)
    assert received == [("a[b]*?\\/x", b"1")]


def test_a_callback_can_subscribe_from_the_bus_thread(made: Made) -> None:
    one, two = made(), made()
    one.publish("second", b"2")
    received: list[bytes] = []

    def relay(_topic: str, _value: bytes) -> None:
        two.subscribe("second", lambda _, value: received.append(value))

    two.subscribe("first", relay)
    one.publish("first", b"1")
    wait_until(lambda: received == [b"2"])


def test_clients_reconnect_to_a_restarted_server_and_republish(made: Made, server: PrivateRedis) -> None:
    one, two = made(), made()
    received = received_by(two, "t/")
    one.publish("t/old", b"1")
    wait_until(lambda: received == [("t/old", b"1")])
    server.kill()
    wait_until(lambda: not one.state.connected and not two.state.connected)
    for number in range(300):
        one.publish("t/new", b"%d" % number)
        one.append("t/stream", b"%d" % number)
    assert one.latest("t/new") == b"299"
    assert two.latest("t/old") == b"1"
    assert made().latest("t/old") is None
    server.start()
    wait_until(lambda: one.state.connected and two.state.connected)
    wait_until(lambda: [value for name, value in received if name == "t/stream"] == [b"%d" % n for n in range(300)])
    wait_until(lambda: two.latest("t/new") == b"299")
    wait_until(lambda: made().latest("t/old") == b"1")
    assert one.state.connections == two.state.connections == 2


def test_a_flushed_server_is_refilled_without_a_reconnect(made: Made, server: PrivateRedis) -> None:
    one = made()
    one.publish("t", b"1")
    wait_until(lambda: made().latest("t") == b"1")
    with redis.Redis.from_url(server.url) as client:
        client.flushall()
    wait_until(lambda: made().latest("t") == b"1")
    one.publish("t", b"2")
    wait_until(lambda: made().latest("t") == b"2")
    assert one.state.connections == 1


def test_a_value_whose_message_was_lost_arrives_at_the_next_comparison(
    made: Made, server: PrivateRedis, request: pytest.FixtureRequest
) -> None:
    one, two = made(), made()
    received = received_by(two, "t")
    one.publish("t", b"1")
    wait_until(lambda: received == [("t", b"1")])
    with redis.Redis.from_url(server.url) as client:
        keyring = keyring_of(request.node.name)
        names = BusNames(installation_prefix(keyring.used))
        version = int(client.hget(names.versions, "t") or 0) + 1  # type: ignore[arg-type]
        tail = FrameSeal(keyring).tail("v", "t", Frame(version, "a" * 16, 9, b"2"))
        client.hset(names.values, "t", b"%d%s" % (version, tail))
        client.hset(names.versions, "t", version)
    wait_until(lambda: received[-1] == ("t", b"2"))


def test_a_frozen_server_is_abandoned_and_does_not_block_publishers(made: Made, server: PrivateRedis) -> None:
    one = made()
    wait_until(lambda: one.state.connected)
    server.freeze()
    try:
        for number in range(1000):
            one.publish("t", b"%d" % number)
        wait_until(lambda: not one.state.connected)
    finally:
        server.thaw()
    wait_until(lambda: made().latest("t") == b"999")


def test_a_failed_session_ends_even_if_its_receiver_swallows_a_cancellation(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As asyncio.wait_for of Python 3.11 does, when the cancellation comes as what it waits for is done.
    receive, send = RedisSession._receive, RedisSession._send_batch
    failed = threading.Event()

    async def receive_on(session: RedisSession) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await receive(session)
        await receive(session)

    async def fail_once(session: RedisSession, *batch: Any) -> None:
        if not failed.is_set():
            failed.set()
            raise TimeoutError("the server does not answer")
        await send(session, *batch)

    monkeypatch.setattr(RedisSession, "_receive", receive_on)
    monkeypatch.setattr(RedisSession, "_send_batch", fail_once)
    one = made()
    wait_until(lambda: one.state.connected)
    one.publish("t", b"1")
    wait_until(lambda: made().latest("t") == b"1")
    assert failed.is_set()
    assert one.state.connections == 2


def test_a_disconnected_process_later_gets_the_entries_that_the_server_kept(made: Made, server: PrivateRedis) -> None:
    one, two = made(), made()
    received = received_by(two, "s")
    one.append("s", b"before")
    wait_until(lambda: len(received) == 1)
    with redis.Redis.from_url(server.url) as client:
        for connection in client.client_list():
            if connection["sub"] != "0" and connection["id"]:
                client.client_kill_filter(_id=connection["id"])
    one.append("s", b"meanwhile")
    wait_until(lambda: [value for _, value in received] == [b"before", b"meanwhile"])


def test_a_stream_is_also_bounded_in_bytes(made: Made, server: PrivateRedis, request: pytest.FixtureRequest) -> None:
    one = made(RedisBusSettings(max_stream_bytes=1000))
    for number in range(30):
        one.append("s", b"%d" % (number % 10) * 100)
    one.append("s", b"larger than the limit" * 100)
    one.append("s", b"the last one")
    wait_until(lambda: one._link.idle)
    names = names_of(request.node.name)
    with redis.Redis.from_url(server.url) as client:
        [(_, kept)] = client.xrange(names.stream("s"))  # type: ignore[misc]
        assert kept[b"frame"].endswith(b"the last one")
        assert int(client.hget(names.stream_bytes, "s") or 0) == len(kept[b"frame"])  # type: ignore[arg-type]


def test_sending_does_not_wait_for_a_backlog_of_received_messages(made: Made) -> None:
    busy, other = made(), made()
    received: list[int] = []
    at: list[int] = []
    published = threading.Event()

    def receive(_topic: str, _value: bytes) -> None:
        received.append(0)
        time.sleep(0.0005)
        if len(received) == 100:
            busy.publish("words", b"from the one that is busy")

    def answered(_topic: str, _value: bytes) -> None:
        at.append(len(received))
        published.set()

    busy.subscribe("flood", receive)
    other.subscribe("words", answered)
    for _ in range(FLOOD):
        other.append("flood", b"")
    assert published.wait(60)
    # The three turns of the loop that sending takes, with the messages received in each of them.
    assert 100 <= at[0] < 500


def test_messages_beyond_the_limits_are_counted(made: Made) -> None:
    limits = RedisBusSettings(max_topics=2, max_entries=3, max_waiting_bytes=100, wait_s=0.1)
    away = RedisBus("redis://127.0.0.1:1/0", KEYRING, limits)
    for number in range(5):
        away.append("s", b"%d" % number)
    assert away.state.dropped == 2
    for topic in ("a", "b", "c"):
        away.publish(topic, b"v")
    assert away.state.dropped == 3
    away.publish("a", b"x" * 101)
    assert away.state.dropped > 3
    assert away.latest("a") == b"x" * 101
    away.close()


def test_the_server_keeps_a_bounded_number_of_topics(made: Made) -> None:
    one = made(RedisBusSettings(max_topics=2))
    for topic in ("a", "b"):
        one.publish(topic, b"1")
    wait_until(lambda: one._link.idle)
    one.publish("c", b"1")
    wait_until(lambda: one.state.dropped == 1)
    assert made().latest("c") is None


def test_a_stream_keeps_a_bounded_number_of_entries(
    made: Made, server: PrivateRedis, request: pytest.FixtureRequest
) -> None:
    one = made(RedisBusSettings(max_entries=100))
    for number in range(3000):
        one.append("s", b"%d" % number)
        if number % 50 == 0:
            wait_until(lambda: one._link.idle)
    wait_until(lambda: one._link.idle)
    names = names_of(request.node.name)
    with redis.Redis.from_url(server.url) as client:
        assert 100 <= int(client.xlen(names.stream("s"))) <= 400  # type: ignore[arg-type]


@pytest.mark.parametrize("data", [b"", b"1:2", b"x" * 500, b"1:" + b"a" * 16 + b":1", b"-1:" + b"a" * 16 + b":1\nv"])
def test_a_foreign_message_on_the_channel_is_counted_and_disturbs_no_subscriber(
    made: Made, server: PrivateRedis, data: bytes, request: pytest.FixtureRequest
) -> None:
    one, two = made(), made()
    received = received_by(one, "t")
    names = names_of(request.node.name)
    with redis.Redis.from_url(server.url) as client:
        client.publish(names.channel("v", "t"), data)
        client.publish(names.channel("s", "t"), b"1-1\n" + data)
    two.publish("t", b"1")
    wait_until(lambda: received == [("t", b"1")])
    assert one.state.unreadable == 2


def test_closing_sends_pending_messages_and_can_be_repeated(made: Made) -> None:
    one = made(RedisBusSettings(close_s=PATIENCE_S))
    one.publish("t", b"1")
    one.close()
    one.close()
    one.publish("t", b"2")
    assert made().latest("t") == b"1"


@pytest.mark.parametrize("url", ["http://x", "nonsense", "redis://h:x/0"])
def test_an_unsupported_url_is_rejected_immediately(url: str) -> None:
    # The thread of an earlier test may still be on its way out.
    before = set(threading.enumerate())
    with pytest.raises(ValueError):
        RedisBus(url, KEYRING)
    assert not [item for item in threading.enumerate() if item.name == "redis bus" and item not in before]


def test_the_password_appears_in_no_log(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    caplog.set_level("DEBUG")
    bus = RedisBus("redis://user:hunter2@127.0.0.1:1/0", KEYRING, QUICK)
    wait_until(lambda: "bus_lost" in caplog.text)
    bus.close()
    assert "hunter2" not in caplog.text


def test_a_value_published_without_the_secret_is_ignored_counted_and_logged_once(
    made: Made, server: PrivateRedis, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = made(), made()
    received = received_by(one, "snapshot")
    received_by(one, "keys")
    two.publish("snapshot", b"true")
    wait_until(lambda: received == [("snapshot", b"true")])
    names = names_of(request.node.name)
    with redis.Redis.from_url(server.url) as client:
        stored: bytes = client.hget(names.values, "snapshot")  # type: ignore[assignment]
        version, _, tail = stored.partition(b":")
        newer = b"%d:" % (int(version) + 1)
        changed = newer + tail.replace(b"true", b"forged")
        strangers = FrameSeal(Keyring.of(b"another secret")).tail("v", "snapshot", Frame(0, "b" * 16, 1, b"forged"))
        client.publish(names.channel("v", "snapshot"), changed)
        client.publish(names.channel("v", "snapshot"), newer[:-1] + strangers)
        client.publish(names.channel("v", "keys"), newer + tail)
        client.publish(names.channel("s", "snapshot"), b"1-1\n" + newer + tail)
        client.hset(names.values, "snapshot", changed)
        client.hset(names.versions, "snapshot", int(version) + 1)
    wait_until(lambda: one.state.unreadable >= 4)
    assert received == [("snapshot", b"true")]
    assert one.latest("keys") is None
    assert caplog.text.count("bus_message_rejected") <= 2, "once by each of the two"
    wait_until(lambda: made().latest("snapshot") == b"true")


def test_an_old_value_with_a_new_version_is_rejected(
    made: Made, server: PrivateRedis, request: pytest.FixtureRequest
) -> None:
    one, two = made(), made()
    received = received_by(one, "t")
    two.publish("t", b"key is valid")
    wait_until(lambda: received == [("t", b"key is valid")])
    names = names_of(request.node.name)
    with redis.Redis.from_url(server.url) as client:
        old: bytes = client.hget(names.values, "t")  # type: ignore[assignment]
        two.publish("t", b"key is revoked")
        wait_until(lambda: one.latest("t") == b"key is revoked")
        version, _, tail = old.partition(b":")
        client.publish(names.channel("v", "t"), b"%d:%s" % (int(version) + 10**9, tail))
        client.publish(names.channel("v", "t"), b"no frame")
    wait_until(lambda: one.state.unreadable == 1)
    assert one.latest("t") == b"key is revoked"
