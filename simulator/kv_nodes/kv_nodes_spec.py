"""Which node managers a simulated fleet has, and what their tiers and links can do."""

from __future__ import annotations

import msgspec


class KvNodesSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Alike nodes; engines have them as their own in turn. The links between nodes are the engine profile's."""

    nodes: int = 2
    dram_tokens: int = 3_000_000
    """Per node."""
    ssd_tokens: int = 0
    """Per node; 0: no SSD tier."""
    own_bytes_per_s: float = 22e9
    """From an engine's own node into it, per engine: PCIe 4.0 × 16 with its overhead."""
    latency_s: float = 0.001
    """Of each load."""
    ssd_bytes_per_s: float = 6e9
    """Read, per node."""
    eviction: str = "leaf_lru"
    orders: bool = True
    """Planners move blocks ahead of their use, as in a gateway."""
    homes: tuple[int, ...] = ()
    """Node of each engine, by number, -1 where it has none; more engines go on from the first. Empty: in turn."""
