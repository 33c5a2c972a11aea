"""Which prefetched bytes a request used, and which were moved for nothing."""

from __future__ import annotations

from collections import defaultdict


class PrefetchUse:
    """Bytes that prefetches landed, by session and node, until its request comes.

    Mutable state: `wasted_bytes`, `used_bytes`, `_unused`.
    """

    def __init__(self) -> None:
        self.used_bytes = 0.0
        self._gone_bytes = 0.0
        self._unused: defaultdict[int, dict[int, float]] = defaultdict(dict)

    @property
    def wasted_bytes(self) -> float:
        """Bytes that no request has used, those included that still may be."""
        return self._gone_bytes + sum(sum(nodes.values()) for nodes in self._unused.values())

    def landed(self, session_id: int, node: int, size: float) -> None:
        """Count bytes that a prefetch brought to a node or its engine."""
        nodes = self._unused[session_id]
        nodes[node] = nodes.get(node, 0.0) + size

    def arrived(self, session_id: int, node: int) -> None:
        """Count what is at the node that serves the session's request as used, and the rest as wasted."""
        nodes = self._unused.pop(session_id, {})
        self.used_bytes += nodes.pop(node, 0.0)
        self._gone_bytes += sum(nodes.values())

    def evicted(self, session_id: int) -> None:
        """Count as wasted what left DRAM before its request came."""
        self._gone_bytes += sum(self._unused.pop(session_id, {}).values())
