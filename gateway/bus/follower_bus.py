"""A gateway's end of a bus that belongs to a control plane: it follows all topics, and publishes only its own."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

from gateway.bus.bus import CLAIM_S, Bus
from gateway.bus.bus_subscribers import Callback

TOPIC_PREFIX = "gateways/"


class FollowerBus:
    """Receives the shared topics and publishes last values below `gateways/<name>/` only, so that it never answers for
    the fleet; entries of streams have many publishers by nature and go to the shared stream.
    """

    def __init__(self, bus: Bus, name: str) -> None:
        self._bus = bus
        self._own = f"{TOPIC_PREFIX}{name}/"

    @property
    def connected(self) -> bool:
        """Whether the shared bus is connected."""
        return self._bus.connected

    def publish(self, topic: str, value: bytes) -> None:
        """Make `value` the last value of this gateway's own `topic`."""
        self._bus.publish(self._own + topic, value)

    def latest(self, topic: str) -> bytes | None:
        """Return the last value of the shared topic."""
        return self._bus.latest(topic)

    def append(self, topic: str, value: bytes) -> None:
        """Send an entry to the subscribers of the shared topic."""
        self._bus.append(topic, value)

    def notify(self, topic: str, value: bytes) -> Future[int]:
        """Notify the present subscribers of the shared topic."""
        return self._bus.notify(topic, value)

    def claim(self, name: str, holder: str, *, instead_of: str = "", seconds: float = CLAIM_S) -> Future[str]:
        """Return the holder of `name` among all."""
        return self._bus.claim(name, holder, instead_of=instead_of, seconds=seconds)

    def subscribe(self, topic: str, callback: Callback) -> Callable[[], None]:
        """Subscribe to the shared topic, or all below a prefix ending in "/"."""
        return self._bus.subscribe(topic, callback)


def subscribe_to_gateways(bus: Bus, topic: str, take: Callable[[str, bytes], None]) -> Callable[[], None]:
    """Subscribe to each gateway's own `topic`, with the gateway's name (empty: one without); returns the call that ends
    it.
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
