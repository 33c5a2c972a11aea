"""The live samples of all gateways, decoded once for all subscribers in this process."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from controlplane.platform.bus import get_bus
from controlplane.platform.live_fleet.fleet_together import FleetTogether
from gateway.bus.bus import Bus
from gateway.bus.follower_bus import subscribe_to_gateways
from gateway.contracts.fleet_sample import TOPIC, FleetSample, decode_sample
from gateway.contracts.wire import UnreadableMessageError

MAX_GATEWAYS = 256
MAX_AGE_S = 5.0
"""A gateway that is silent for longer is ignored. Samples arrive twice a second."""
TOGETHER_EVERY_S = 0.4
"""Minimum interval between merged samples, because samples of several gateways arrive interleaved."""
LARGE, LARGE_EVERY_S = 500, 0.9
"""From this number of engines on, one sample per second is shown: each costs time in proportion to the engines."""

logger = logging.getLogger(__name__)

OnSample = Callable[[str, FleetSample], None]
"""Callback for a gateway's name (empty: the only gateway) and its sample."""
Shown = Callable[[FleetSample], None]


@dataclass(slots=True)
class _Gateway:
    sample: FleetSample
    arrived_s: float
    again: bool = False
    """Whether more than one sample arrived. The first may be a stored value of a gateway that ended long ago."""


class FleetSamples:
    """Follows the gateways. Thread-safe: callbacks run in the publisher's thread, outside the lock.

    Mutable state: the newest sample of each gateway, the newest merged sample, and the subscribers.
    """

    def __init__(self, bus: Bus, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._gateways: dict[str, _Gateway] = {}
        self._together = FleetTogether()
        self._latest: FleetSample | None = None
        self._shown_s = 0.0
        self._on_gateway: list[OnSample] = []
        self._all: list[Shown] = []
        subscribe_to_gateways(bus, TOPIC, self._receive)

    @property
    def latest(self) -> FleetSample | None:
        """Return the newest merged sample of all gateways; None before the first."""
        with self._lock:
            if not self._all:
                # Samples that arrive are not merged while there are no subscribers.
                self._latest = self._together.sample(self._counted(self._clock())) or self._latest
            return self._latest

    def newest_snapshot(self) -> int:
        """Return the highest snapshot version that a gateway currently serves; 0: no gateway reports."""
        with self._lock:
            served = self._counted(self._clock()).values()
        return max((item.snapshot_version for item in served), default=0)

    def newest(self) -> list[FleetSample]:
        """Return the last sample of each known gateway, regardless of age."""
        with self._lock:
            return [gateway.sample for gateway in self._gateways.values()]

    def subscribe(self, shown: Shown) -> Callable[[], None]:
        """Subscribe to the merged samples, starting with the newest. Return a function that unsubscribes."""
        latest = self.latest
        with self._lock:
            self._all = [*self._all, shown]
        if latest is not None:
            shown(latest)

        def leave() -> None:
            with self._lock:
                self._all = [item for item in self._all if item is not shown]

        return leave

    def subscribe_gateways(self, on_sample: OnSample) -> Callable[[], None]:
        """Subscribe to the samples of each gateway, starting with the newest. Return a function that unsubscribes."""
        with self._lock:
            self._on_gateway = [*self._on_gateway, on_sample]
            known = self._counted(self._clock())
        for name, sample in known.items():
            on_sample(name, sample)

        def leave() -> None:
            with self._lock:
                self._on_gateway = [item for item in self._on_gateway if item is not on_sample]

        return leave

    def _receive(self, name: str, value: bytes) -> None:
        try:
            sample = decode_sample(value)
        except UnreadableMessageError as error:
            logger.warning("a fleet sample is unreadable and was dropped: %s", error, extra={"gateway": name})
            return
        with self._lock:
            now = self._clock()
            if not self._admit(name, sample, now):
                return
            followers, shown = self._on_gateway, self._all
            # Merging costs time, so it is done only for subscribers.
            picture = self._picture(now) if shown else None
        for on_sample in followers:
            on_sample(name, sample)
        if picture is not None:
            for follow in shown:
                follow(picture)

    def _admit(self, name: str, sample: FleetSample, now: float) -> bool:
        known = self._gateways.get(name)
        if known is None and len(self._gateways) >= MAX_GATEWAYS:
            self._gateways = {
                key: gateway for key, gateway in self._gateways.items() if now - gateway.arrived_s <= MAX_AGE_S
            }
            if len(self._gateways) >= MAX_GATEWAYS:
                return False
        self._gateways[name] = _Gateway(sample, now, again=known is not None)
        return True

    def _counted(self, now: float) -> Mapping[str, FleetSample]:
        """Return the samples of the gateways that currently report, ordered by name."""
        speaking = {key: gateway for key, gateway in self._gateways.items() if now - gateway.arrived_s <= MAX_AGE_S}
        newest_at = max((item.sample.at for item in speaking.values()), default=0.0)
        return {
            name: gateway.sample
            for name, gateway in sorted(speaking.items())
            # A second sample shows that the gateway runs, however slow its clock is.
            if gateway.again or gateway.sample.at >= newest_at - MAX_AGE_S
        }

    def _picture(self, now: float) -> FleetSample | None:
        """Return a new merged sample; None if the last one is too new."""
        counted = self._counted(now)
        is_large = any(len(item.engines) >= LARGE for item in counted.values())
        every_s = LARGE_EVERY_S if is_large else TOGETHER_EVERY_S if len(counted) > 1 else 0.0
        if now - self._shown_s < every_s:
            return None
        self._shown_s = now
        self._latest = self._together.sample(counted)
        return self._latest


def fleet_samples() -> FleetSamples:
    """Return this process's FleetSamples, which follows the control plane's bus."""
    return _samples_on(get_bus())  # type: ignore[arg-type]  # a bus is hashable by its identity


@lru_cache(maxsize=1)
def _samples_on(bus: Bus) -> FleetSamples:
    return FleetSamples(bus)
