"""Limit connections of unauthenticated clients in number and time."""

from __future__ import annotations

from collections import Counter
from ipaddress import IPv6Address, ip_address
from typing import Generic, TypeVar

ConnectionT = TypeVar("ConnectionT")


class Unproven(Generic[ConnectionT]):
    """At most `most` connections, each for at most `limit_s`.

    A further connection displaces the oldest one of the source with the most connections, so that a client displaces
    its own connections first. Mutable state: `_entered`, connection → source and time, oldest first. For one thread.
    """

    def __init__(self, most: int, limit_s: float) -> None:
        self.most, self.limit_s = most, limit_s
        self._entered: dict[ConnectionT, tuple[str, float]] = {}

    def __len__(self) -> int:
        return len(self._entered)

    def enter(self, connection: ConnectionT, address: str, now: float) -> ConnectionT | None:
        """Add a new connection. Return the displaced one, which the caller must close."""
        self._entered[connection] = source_of(address), now
        return self._displaced() if len(self._entered) > self.most else None

    def leave(self, connection: ConnectionT) -> bool:
        """Remove a connection that proved the secret or ended. Return False if it was displaced or late."""
        return self._entered.pop(connection, None) is not None

    def late(self, now: float) -> list[ConnectionT]:
        """Return and remove the connections that exceeded the time limit, which the caller must close."""
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
    """Return a client's source: its address, its /64 network, or "" for this machine."""
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
