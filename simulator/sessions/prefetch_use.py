"""Counts prefetched bytes that a request used, and those that were never used."""

from __future__ import annotations

from collections import defaultdict


class PrefetchUse:
    """Counts bytes that prefetches deliver, by session and node, as used or wasted once the session's request arrives.

    Mutable state: `wasted_bytes`, `used_bytes`, `_unused`.
    """

    def __init__(self) -> None:
        self.used_bytes = 0.0
        self._gone_bytes = 0.0
        self._unused: defaultdict[int, dict[str, float]] = defaultdict(dict)

    @property
    def wasted_bytes(self) -> float:
        """Bytes that no request has used, including those that can still be used."""
        return self._gone_bytes + sum(sum(nodes.values()) for nodes in self._unused.values())

    def landed(self, session_id: int, node: str, size: float) -> None:
        """Count bytes that a prefetch delivered to a node or one of its engines."""
        nodes = self._unused[session_id]
        nodes[node] = nodes.get(node, 0.0) + size

    def arrived(self, session_id: int, node: str) -> None:
        """Count the bytes on the node that serves the session's request as used, and the others as wasted."""
        nodes = self._unused.pop(session_id, {})
        self.used_bytes += nodes.pop(node, 0.0)
        self._gone_bytes += sum(nodes.values())

    def evicted(self, session_id: int) -> None:
        """Count bytes that were evicted from DRAM before their request arrived as wasted."""
        self._gone_bytes += sum(self._unused.pop(session_id, {}).values())
