"""A gateway's end of a control plane's bus: it follows all topics and publishes only its own."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

from gateway.bus.bus import CLAIM_S, Bus
from gateway.bus.bus_subscribers import Callback

TOPIC_PREFIX = "gateways/"


class FollowerBus:
    """Receives the shared topics, and publishes last values only below `gateways/<name>/`.

    It therefore never overwrites fleet values. Stream entries are sent to the shared stream, which has many publishers.
    """

    def __init__(self, bus: Bus, name: str) -> None:
        self._bus = bus
        self._own = f"{TOPIC_PREFIX}{name}/"

    @property
    def connected(self) -> bool:
        """Return whether the shared bus is connected."""
        return self._bus.connected

    def publish(self, topic: str, value: bytes) -> None:
        """Publish `value` as the last value of this gateway's own `topic`."""
        self._bus.publish(self._own + topic, value)

    def latest(self, topic: str) -> bytes | None:
        """Return the last value of the shared topic."""
        return self._bus.latest(topic)

    def append(self, topic: str, value: bytes) -> None:
        """Send an entry to the subscribers of the shared topic."""
        self._bus.append(topic, value)

    def notify(self, topic: str, value: bytes) -> Future[int]:
        """Notify the current subscribers of the shared topic."""
        return self._bus.notify(topic, value)

    def claim(self, name: str, holder: str, *, instead_of: str = "", seconds: float = CLAIM_S) -> Future[str]:
        """Return the holder of `name` among all processes."""
        return self._bus.claim(name, holder, instead_of=instead_of, seconds=seconds)

    def subscribe(self, topic: str, callback: Callback) -> Callable[[], None]:
        """Subscribe to the shared topic, or to all topics below a prefix ending in "/"."""
        return self._bus.subscribe(topic, callback)


def subscribe_to_gateways(bus: Bus, topic: str, take: Callable[[str, bytes], None]) -> Callable[[], None]:
    """Subscribe to each gateway's own `topic`; return the function that unsubscribes.

    `take` receives the gateway's name, empty for a gateway without one.
    """

    def deliver(name: str, value: bytes) -> None:
        gateway, _, what = name.removeprefix(TOPIC_PREFIX).partition("/")
        if what == topic:
            take(gateway, value)

    ends = (bus.subscribe(topic, lambda _topic, value: take("", value)), bus.subscribe(TOPIC_PREFIX, deliver))

    def end() -> None:
        for end in ends:
            end()

    return end
