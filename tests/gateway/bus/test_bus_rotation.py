"""The bus during rotation of the fleet secret: one order of values, one holder of a claim, and no gap in any phase."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from gateway.bus.bus_frame import Frame, FrameSeal, UnreadableFrameError
from gateway.bus.redis_bus import RedisBus, RedisBusSettings
from gateway.bus.redis_link import LinkSettings
from gateway.bus.redis_scripts import CLAIM, BusNames, installation_prefix, meeting_point
from kvstore.keys.keyring import Keyring, stretched
from tests.patience import PATIENCE_S, wait_until
from tests.private_redis import PrivateRedis, private_bus

COMPARE_S = 0.2
PATIENT = RedisBusSettings(
    wait_s=PATIENCE_S, link=LinkSettings(compare_s=COMPARE_S, connect_s=PATIENCE_S, answer_s=PATIENCE_S)
)
STEPS = ("old", ""), ("old", "new"), ("new", "old"), ("new", "")
"""The secret that a process uses, and the other one that it accepts, from before a rotation until after it."""
Made = Callable[..., RedisBus]


@pytest.fixture(scope="module")
def server() -> Iterator[PrivateRedis]:
    with private_bus() as running:
        yield running


@pytest.fixture
def keyring(request: pytest.FixtureRequest) -> Callable[[int], Keyring]:
    """Return the secrets of a process at a rotation step; each test has its own installation."""
    test = request.node.name.encode()

    def held(step: int) -> Keyring:
        used, also = (name.encode() + test if name else b"" for name in STEPS[step])
        return Keyring.of(used, also)

    return held


@pytest.fixture
def made(server: PrivateRedis, keyring: Callable[[int], Keyring]) -> Iterator[Made]:
    """Return a factory of bus clients for one more process at a rotation step."""
    buses: list[RedisBus] = []

    def make(step: int, **more: Any) -> RedisBus:
        buses.append(RedisBus(server.url, more.pop("keyring", keyring(step)), PATIENT, **more))
        return buses[-1]

    yield make
    for bus in buses:
        bus.close()


def received_by(bus: RedisBus, topic: str) -> list[bytes]:
    received: list[bytes] = []
    bus.subscribe(topic, lambda _name, value: received.append(value))
    return received


@pytest.mark.parametrize("step", range(3))
@pytest.mark.parametrize("forth", [True, False])
def test_processes_before_and_after_a_step_share_values_entries_and_claims(made: Made, step: int, forth: bool) -> None:
    # As a rolling restart meets them: the first ends started when there was nothing else.
    for past in range(step):
        made(past).publish("snapshot", b"%d" % past)
    before = made(step)
    before.publish("snapshot", b"before")
    wait_until(lambda: before._link.idle)
    after = made(step + 1)
    one, other = (before, after) if forth else (after, before)
    values, entries, reported = (
        received_by(other, "snapshot"),
        received_by(other, "stream"),
        received_by(other, "peers/other"),
    )
    one.publish("snapshot", b"of one")
    one.append("stream", b"entry")
    wait_until(lambda: one.connected)
    assert one.notify("peers/other", b"call").result(30) == 1
    wait_until(lambda: values[-1:] == [b"of one"] and entries == [b"entry"] and reported == [b"call"])
    other.publish("snapshot", b"of other")
    wait_until(lambda: one.latest("snapshot") == b"of other")
    assert one.claim("name", "one").result(30) == "one"
    assert other.claim("name", "other").result(30) == "one"
    assert [bus.state.unreadable for bus in (before, after)] == [0, 0]


def test_values_survive_a_whole_rotation_although_their_publisher_has_ended(made: Made) -> None:
    first = made(0)
    first.publish("snapshot", b"of the beginning")
    wait_until(lambda: made(0).latest("snapshot") == b"of the beginning")
    first.close()
    for step in (1, 2):
        bus = made(step)
        assert received_by(bus, "snapshot") == [b"of the beginning"]
        if step == 2:
            wait_until(lambda bus=bus: not bus._ports.to_reseal)
            time.sleep(2 * COMPARE_S)
        bus.close()
    last = made(3)
    assert last.latest("snapshot") == b"of the beginning"
    assert last.state.unreadable == 0


def test_the_later_value_wins_across_secrets_despite_its_publishers_slow_clock(made: Made) -> None:
    fast, slow = made(1, clock=lambda: time.time() + 3600), made(2, clock=lambda: time.time() - 3600)
    reader = received_by(made(1), "t")
    fast.publish("t", b"first")
    wait_until(lambda: reader[-1:] == [b"first"])
    slow.publish("t", b"second")
    wait_until(lambda: reader[-1:] == [b"second"])
    wait_until(lambda: fast.latest("t") == b"second")


def test_entries_appended_while_a_process_changes_its_secret_are_received(made: Made) -> None:
    """A worker restarts; gateways meanwhile append to the one stream that both secrets lead to."""
    gateway, worker = made(1), made(1)
    received = received_by(worker, "stream")
    gateway.append("stream", b"1")
    wait_until(lambda: received == [b"1"])
    worker.close()
    gateway.append("stream", b"2")
    wait_until(lambda: gateway._link.idle)
    again = made(2)
    later = received_by(again, "stream")
    gateway.append("stream", b"3")
    wait_until(lambda: later[-1:] == [b"3"])
    names = again._ports.names
    assert names.stream("stream") == gateway._ports.names.stream("stream")


def test_a_process_two_steps_away_is_another_installation(made: Made) -> None:
    before, after = made(0), made(3)
    before.publish("t", b"1")
    wait_until(lambda: before._link.idle)
    assert after.latest("t") is None
    assert after._ports.names.values != before._ports.names.values


def test_after_a_flush_during_rotation_all_processes_use_one_prefix_again(
    made: Made, server: PrivateRedis, keyring: Callable[[int], Keyring]
) -> None:
    before = made(1)
    before.publish("snapshot", b"1")
    # The first process to connect leaves its prefix for all: the second one starts after it.
    wait_until(lambda: before._link.idle)
    after = made(2)
    received = received_by(after, "snapshot")
    wait_until(lambda: received == [b"1"])
    old = before._ports.names.values
    with redis.Redis.from_url(server.url) as client:
        client.flushall()
        # A process that is faster than the next comparison finds no prefix, and leaves the one of its own secret.
        secret = keyring(2).used
        client.set(meeting_point(secret), installation_prefix(secret))
        points = [meeting_point(item) for item in keyring(1).every]
        wait_until(lambda: len(set(client.mget(points))) == 1 and None not in client.mget(points))  # type: ignore[arg-type]
        wait_until(lambda: before._ports.names.values == after._ports.names.values)
        before.publish("snapshot", b"2")
        wait_until(lambda: received[-1] == b"2")
    assert old == BusNames(installation_prefix(keyring(1).used)).values
    last = made(3)
    wait_until(lambda: last.latest("snapshot") == b"2")


@pytest.mark.parametrize("held", [b"", b"nonsense", b"headway:12", b"headway:" + b"g" * 24])
def test_an_invalid_prefix_is_replaced(
    made: Made, server: PrivateRedis, keyring: Callable[[int], Keyring], held: bytes
) -> None:
    point = meeting_point(keyring(0).used)
    with redis.Redis.from_url(server.url) as client:
        client.set(point, held)
        one, two = made(0), made(0)
        one.publish("t", b"1")
        wait_until(lambda: two.latest("t") == b"1")
        assert client.get(point) == installation_prefix(keyring(0).used).encode()


def test_a_process_follows_its_installation_to_another_prefix_with_its_state(
    made: Made, keyring: Callable[[int], Keyring]
) -> None:
    one, two = made(0), made(0)
    one.publish("t", b"1")
    received = received_by(two, "t")
    wait_until(lambda: received == [b"1"])
    elsewhere = installation_prefix(stretched(b"whatever was there before"))
    point, old = meeting_point(keyring(0).used), one._ports.prefix
    assert one._ask("EVAL", CLAIM, 1, point, elsewhere, old, 10**9).result(30) == elsewhere
    wait_until(lambda: one._ports.prefix == two._ports.prefix == elsewhere and one.connected)
    one.publish("t", b"2")
    wait_until(lambda: received[-1] == b"2")
    assert made(0).latest("t") == b"2"


def test_a_frame_is_readable_with_any_of_its_senders_secrets(keyring: Callable[[int], Keyring]) -> None:
    for writer in range(4):
        tail = FrameSeal(keyring(writer)).tail("v", "t", Frame(1, "a" * 16, 1, b"value"))
        assert tail.count(b",") == (writer in (1, 2))
        for reader in range(4):
            held = keyring(reader)
            seal = FrameSeal(held)
            if set(STEPS[writer]) & set(STEPS[reader]) - {""}:
                frame = seal.read("v", "t", b"7" + tail)
                assert (frame.version, frame.value) == (7, b"value")
                # Only what would be lost with the other secret is counted, and sealed again.
                ends_with_it = STEPS[reader][0] not in STEPS[writer]
                assert frame.sealed_by_used != ends_with_it
                assert {purpose: use.count for purpose, use in held.uses.items()} == (
                    {"bus messages": 1} if ends_with_it else {}
                )
            else:
                with pytest.raises(UnreadableFrameError):
                    seal.read("v", "t", b"7" + tail)


def test_a_seal_of_neither_secret_is_rejected_whatever_surrounds_it(keyring: Callable[[int], Keyring]) -> None:
    seal = FrameSeal(keyring(1))
    data = b"7" + seal.tail("v", "t", Frame(1, "a" * 16, 1, b"value"))
    head, _, value = data.partition(b"\n")
    before, _, second = head.rpartition(b",")
    assert seal.read("v", "t", before + b"," + b"0" * 32 + b"\n" + value).value == b"value"
    for forged in (
        before[:-32] + b"0" * 32 + b"," + b"1" * 32,
        head + b"," + second,
        before + b",",
        before + b"," + second[:-1],
    ):
        with pytest.raises(UnreadableFrameError):
            seal.read("v", "t", forged + b"\n" + value)
    with pytest.raises(UnreadableFrameError):
        seal.read("v", "t", head + b"\nother")


def test_concurrent_writers_at_all_steps_of_a_restart_lose_nothing(made: Made) -> None:
    writers = [made(1) for _ in range(2)] + [made(2) for _ in range(2)]
    received = received_by(made(1), "stream")
    wait_until(lambda: all(writer.connected for writer in writers))

    def write(number: int) -> None:
        for count in range(100):
            writers[number].append("stream", b"%d:%d" % (number, count))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wait_until(lambda: len(received) == 400)
    for number in range(4):
        of_one = [int(item.split(b":")[1]) for item in received if item.startswith(b"%d:" % number)]
        assert of_one == list(range(100))
