"""The node managers of a simulated fleet, and the capacity of their tiers and links."""

from __future__ import annotations

import msgspec


class KvNodesSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Equal nodes, assigned to engines in turn. The links between nodes are the engine profile's."""

    nodes: int = 2
    dram_tokens: int = 3_000_000
    """Per node."""
    ssd_tokens: int = 0
    """Per node; 0: no SSD tier."""
    own_bytes_per_s: float = 22e9
    """From an engine's own node to the engine, per engine: PCIe 4.0 × 16 with its overhead."""
    latency_s: float = 0.001
    """Latency of each load."""
    ssd_bytes_per_s: float = 6e9
    """Read rate, per node."""
    eviction: str = "leaf_lru"
    orders: bool = True
    """Whether planners move blocks ahead of their use, as in a gateway."""
    homes: tuple[int, ...] = ()
    """Node of each engine, by number, -1 for none; further engines repeat from the first. Empty: in turn."""
