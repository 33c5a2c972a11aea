"""Gateways of this region with their addresses, as announced on the bus. The last announcement of a gateway counts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from gateway.bus.bus import Bus
from gateway.bus.follower_bus import subscribe_to_gateways
from gateway.contracts.wire import UnreadableMessageError, WireForm
from gateway.peers.links.peer_link import PeerLinks
from gateway.peers.links.peer_proof import PeerIdentity

TOPIC = "peer"
ANNOUNCE_S = 1.0
ANNOUNCING_S = 3.0
"""A gateway that announced itself within this many seconds is alive."""
FORGET_S = 30.0
"""A peer without a connection or an announcement for this long has left, if the bus would have delivered one."""
MAX_PEERS = 64


class PeerAddress(msgspec.Struct, frozen=True):
    """The address at which other gateways reach a gateway."""

    who: PeerIdentity
    address: str
    """host:port."""


_FORM: WireForm[PeerAddress] = WireForm(PeerAddress, "a peer's address", limit=4096)


class PeerDirectory:
    """Follows the announcements and maintains the links within our region.

    Mutable: the known peers, and the time of each one's last announcement. The known peers are kept while the bus is
    away.
    """

    def __init__(self, bus: Bus, links: PeerLinks) -> None:
        self._bus = bus
        self._links = links
        self._known: dict[str, PeerAddress] = {}
        self._received_s: dict[str, float] = {}
        self._announced_s = float("-inf")
        self._own = b""
        self._unsubscribe: Callable[[], None] = lambda: None

    @property
    def tags(self) -> list[str]:
        """Return the sorted tags of all known peers."""
        return sorted(item.who.tag for item in self._known.values())

    def announcing(self, now: float) -> frozenset[str]:
        """Return the tags of gateways that announced themselves recently, or would have with a connected bus."""
        return frozenset(
            peer.who.tag for name, peer in self._known.items() if now - self._received_s.get(name, now) < ANNOUNCING_S
        )

    def name(self, tag: str) -> str:
        """Return the name of the gateway with this tag, or the tag if it has no name."""
        me = self._links.me
        who = [me, *(item.who for item in self._known.values())]
        return next((item.name for item in who if item.tag == tag and item.name), tag)

    def key_space(self, tag: str) -> str:
        """Return the announced fingerprint of that gateway's secret for block keys."""
        return next((item.who.key_space for item in self._known.values() if item.who.tag == tag), "")

    def start(self, address: str) -> None:
        """Announce this gateway and subscribe to the others. Runs on the event loop."""
        self._own = _FORM.encode(PeerAddress(self._links.me, address))
        loop = asyncio.get_running_loop()

        def take(name: str, value: bytes) -> None:
            loop.call_soon_threadsafe(self._receive, name, value)

        self._unsubscribe = subscribe_to_gateways(self._bus, TOPIC, take)

    def stop(self) -> None:
        """Cancel the subscription."""
        self._unsubscribe()

    def tick(self, now: float) -> None:
        """Announce this gateway when due, and remove departed peers."""
        if now - self._announced_s >= ANNOUNCE_S:
            self._announced_s = now
            self._bus.publish(TOPIC, self._own)
        for name in list(self._known):
            tag = self._known[name].who.tag
            received_s = self._received_s.setdefault(name, now)
            if not self._bus.connected or self._links.connected(tag):
                self._received_s[name] = now
            elif now - received_s > FORGET_S:
                del self._known[name], self._received_s[name]
                self._connect()

    def _receive(self, name: str, value: bytes) -> None:
        try:
            address = _FORM.decode(value)
        except UnreadableMessageError:
            return
        me = self._links.me
        # An announcement under our name and another tag is that of an earlier process.
        if address.who.tag == me.tag or address.who.region != me.region or (name and name == me.name):
            return
        self._received_s.pop(name, None)
        if self._known.get(name) != address and (name in self._known or len(self._known) < MAX_PEERS):
            self._known[name] = address
            self._connect()

    def _connect(self) -> None:
        self._links.set_peers({item.who.tag: item.address for item in self._known.values()}, TOPIC)
