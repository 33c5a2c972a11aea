"""Bytes exchanged between a node and each of its clients, by the client's self-chosen name."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping

MAX_LINKS = 256


class ClientLink:
    """One client's link. Mutable: bytes in both directions, and the rate, which only the receiver can measure."""

    def __init__(self) -> None:
        self.sent_bytes = 0
        self.received_bytes = 0
        self.bytes_per_s = 0.0
        """The client's last reported rate, 0 before its first measurement."""


class ClientLinks:
    """At most MAX_LINKS clients; a new one replaces the oldest. For any number of threads."""

    def __init__(self) -> None:
        self._links: dict[str, ClientLink] = {}
        self._lock = threading.Lock()

    def sent(self, name: str, size: int, reported_rate: float) -> None:
        """Record bytes of blocks sent to a client, and the rate that it reported."""
        with self._lock:
            link = self._link(name)
            link.sent_bytes += size
            # The rate is the client's word: a wrong one must not reach the console.
            if math.isfinite(reported_rate) and reported_rate > 0:
                link.bytes_per_s = reported_rate

    def received(self, name: str, size: int) -> None:
        """Record bytes of blocks received from a client."""
        with self._lock:
            self._link(name).received_bytes += size

    def links(self) -> Mapping[str, ClientLink]:
        """Return the links by name."""
        with self._lock:
            return dict(self._links)

    def _link(self, name: str) -> ClientLink:
        link = self._links.get(name)
        if link is None:
            if len(self._links) >= MAX_LINKS:
                del self._links[next(iter(self._links))]
            link = self._links[name] = ClientLink()
        return link
