"""Connections of clients that have proved nothing yet: few at a time, and not for long."""

from __future__ import annotations

from collections import Counter
from ipaddress import IPv6Address, ip_address
from typing import Generic, TypeVar

ConnectionT = TypeVar("ConnectionT")


class Unproven(Generic[ConnectionT]):
    """At most `most` connections, each for `limit_s` at most.

    A connection beyond that displaces the oldest of the source with the most, so that a stranger displaces its own
    before any other's. Mutable state: `_entered`, connection → source and time, oldest first. Not for two threads.
    """

    def __init__(self, most: int, limit_s: float) -> None:
        self.most, self.limit_s = most, limit_s
        self._entered: dict[ConnectionT, tuple[str, float]] = {}

    def __len__(self) -> int:
        return len(self._entered)

    def enter(self, connection: ConnectionT, address: str, now: float) -> ConnectionT | None:
        """Count a new connection; returns the one that it displaces, which the caller closes."""
        self._entered[connection] = source_of(address), now
        return self._displaced() if len(self._entered) > self.most else None

    def leave(self, connection: ConnectionT) -> bool:
        """Stop counting it: it has proved the secret, or has ended. False: it was displaced, or late."""
        return self._entered.pop(connection, None) is not None

    def late(self, now: float) -> list[ConnectionT]:
        """Return the connections whose time is over, which the caller closes; they no longer count."""
        late = [connection for connection, (_, since) in self._entered.items() if now - since >= self.limit_s]
        for item in late:
            del self._entered[item]
        return late

    def _displaced(self) -> ConnectionT:
        counts = Counter(source for source, _ in self._entered.values())
        most = max(counts.values())
        displaced = next(connection for connection, (source, _) in self._entered.items() if counts[source] == most)
        del self._entered[displaced]
        return displaced


def source_of(address: str) -> str:
    """Return the origin that one client can easily use: its address, its /64 network, or "" for this machine."""
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    if isinstance(ip, IPv6Address):
        ip = ip.ipv4_mapped or ip
    if ip.is_loopback:
        return ""
    # One host can use any address of its /64 network.
    return str(ip) if ip.version == 4 else str(IPv6Address(int(ip) >> 64 << 64))
