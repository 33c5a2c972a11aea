"""Samples are decoded once, silent gateways are omitted, and an unreadable sample changes nothing."""

from __future__ import annotations

import msgspec
import pytest

from controlplane.platform.live_fleet.samples import LARGE, MAX_AGE_S, MAX_GATEWAYS, TOGETHER_EVERY_S, FleetSamples
from gateway.bus.bus import InProcessBus
from gateway.contracts.fleet_sample import FleetSample, encode_sample
from tests.controlplane.platform.live_fleet.some_samples import START, engine, sample


class Clock:
    """Returns monotonic seconds set by a test."""

    now = 50.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def bus() -> InProcessBus:
    return InProcessBus()


@pytest.fixture
def samples(bus: InProcessBus, clock: Clock) -> FleetSamples:
    return FleetSamples(bus, clock)


def say(bus: InProcessBus, name: str, at: float, running: int = 2) -> None:
    topic = f"gateways/{name}/fleet" if name else "fleet"
    bus.publish(topic, encode_sample(sample(at, engine("a", running=running))))


def running(picture: FleetSample | None) -> int | None:
    return picture.engines[0].running if picture is not None else None


def test_new_follower_gets_the_newest_sample_at_once_and_then_each(bus: InProcessBus, samples: FleetSamples) -> None:
    say(bus, "", START, 1)
    shown: list[int | None] = []
    leave = samples.subscribe(lambda picture: shown.append(running(picture)))
    say(bus, "", START + 0.5, 2)
    leave()
    say(bus, "", START + 1.0, 3)
    assert shown == [1, 2]
    assert running(samples.latest) == 3


def test_samples_of_several_gateways_are_merged_once_a_round(
    bus: InProcessBus, samples: FleetSamples, clock: Clock
) -> None:
    shown: list[int | None] = []
    samples.subscribe(lambda picture: shown.append(running(picture)))
    for number in range(4):
        say(bus, "g1", START + number / 2)
        clock.now += 0.1
        say(bus, "g2", START + 0.1 + number / 2)
        clock.now += 0.4
    assert shown == [2, 4, 4, 4]
    assert clock.now - 50.0 > 4 * TOGETHER_EVERY_S


def test_a_large_fleet_is_shown_once_a_second(bus: InProcessBus, samples: FleetSamples, clock: Clock) -> None:
    shown: list[float] = []
    samples.subscribe(lambda picture: shown.append(picture.at))
    engines = [engine(f"e{number}") for number in range(LARGE)]
    for number in range(6):
        bus.publish("fleet", encode_sample(sample(START + number / 2, *engines)))
        clock.now += 0.5
    assert shown == [START, START + 1.0, START + 2.0]


def test_each_gateway_can_be_followed_by_its_name(bus: InProcessBus, samples: FleetSamples) -> None:
    say(bus, "g1", START)
    received: list[tuple[str, float]] = []
    leave = samples.subscribe_gateways(lambda name, sample_: received.append((name, sample_.at)))
    say(bus, "g2", START + 1)
    bus.publish("gateways/g2/cache_locality", b"another topic")
    leave()
    say(bus, "g2", START + 2)
    assert received == [("g1", START), ("g2", START + 1)]


def test_silent_gateway_is_removed_from_the_merged_sample(
    bus: InProcessBus, samples: FleetSamples, clock: Clock
) -> None:
    for at in (0.0, 0.5):
        say(bus, "g1", START + at)
        say(bus, "g2", START + at)
    assert running(samples.latest) == 4
    clock.now += MAX_AGE_S + 0.1
    say(bus, "g2", START + 6)
    assert running(samples.latest) == 2
    clock.now += 60.0
    assert running(samples.latest) == 2, "the last truth stays, with its time"


def test_retained_sample_of_a_stopped_gateway_is_ignored(bus: InProcessBus, clock: Clock) -> None:
    say(bus, "ended", START - 3600, 50)
    say(bus, "g1", START)
    samples = FleetSamples(bus, clock)
    assert running(samples.latest) == 2


def test_gateway_with_a_slow_clock_counts_while_it_publishes(bus: InProcessBus, samples: FleetSamples) -> None:
    for at in (0.0, 0.5):
        say(bus, "g1", START + at)
        say(bus, "slow", START - 60 + at, 5)
    assert running(samples.latest) == 7


@pytest.mark.parametrize("value", [b"", b"\xc1", b"not msgpack at all", msgspec.msgpack.encode({"seq": 1})])
def test_invalid_bus_message_is_dropped_and_logged(
    bus: InProcessBus, samples: FleetSamples, value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    say(bus, "g1", START)
    bus.publish("gateways/g1/fleet", value)
    assert running(samples.latest) == 2
    assert "unreadable" in caplog.text


def test_sample_of_another_schema_is_dropped(
    bus: InProcessBus, samples: FleetSamples, caplog: pytest.LogCaptureFixture
) -> None:
    bus.publish("fleet", encode_sample(sample(START, schema_version=2)))
    assert samples.latest is None
    assert "schema 2" in caplog.text


def test_gateways_above_the_limit_wait_until_one_leaves(bus: InProcessBus, samples: FleetSamples, clock: Clock) -> None:
    for number in range(MAX_GATEWAYS + 1):
        say(bus, f"g{number:03d}", START, 1)
    assert running(samples.latest) == MAX_GATEWAYS
    clock.now += MAX_AGE_S + 0.1
    say(bus, "late", START + 10, 1)
    assert running(samples.latest) == 1
