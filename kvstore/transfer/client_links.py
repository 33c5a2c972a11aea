"""What a node exchanged with each of its clients, by the names that they give themselves."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from kvstore.transfer.link_rate import LinkRate

MAX_LINKS = 256
_SAYING = 256 << 10
"""Smaller transfers may lie in the socket's buffer whole, and tell nothing of the link."""


class ClientLink:
    """Mutable: bytes in both directions, and the rate at which large transfers left."""

    def __init__(self) -> None:
        self.sent_bytes = 0
        self.received_bytes = 0
        self._rate = LinkRate()
        self._large = 0

    @property
    def bytes_per_s(self) -> float:
        """Learned rate of what was sent; 0: no large transfer was made."""
        return self._rate.bytes_per_s if self._large else 0.0

    def sent(self, size: int, seconds: float) -> None:
        """Note blocks that were sent."""
        self.sent_bytes += size
        if size >= _SAYING:
            if not self._large:
                self._rate.bytes_per_s = size / max(seconds, 1e-6)
            self._large += 1
            self._rate.observe(size, seconds)


class ClientLinks:
    """At most MAX_LINKS clients; the one that came first leaves for a new one. For any number of threads."""

    def __init__(self) -> None:
        self._links: dict[str, ClientLink] = {}
        self._lock = threading.Lock()

    def sent(self, name: str, size: int, seconds: float) -> None:
        """Note that blocks went to a client, within so many seconds."""
        with self._lock:
            self._link(name).sent(size, seconds)

    def received(self, name: str, size: int) -> None:
        """Note that bytes of blocks came from a client."""
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
