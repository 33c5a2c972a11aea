"""The node managers of a simulated fleet, and the capacities of their tiers and links."""

from __future__ import annotations

import msgspec


class KvNodesSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Equal nodes, assigned to engines in turn. Links between nodes have the bandwidth in the engine profile."""

    nodes: int = 2
    dram_tokens: int = 3_000_000
    """DRAM capacity per node."""
    ssd_tokens: int = 0
    """SSD capacity per node; 0 for no SSD tier."""
    own_bytes_per_s: float = 22e9
    """Bandwidth from an engine's own node to the engine, per engine: PCIe 4.0 × 16 with overhead."""
    latency_s: float = 0.001
    """Latency of each load."""
    ssd_bytes_per_s: float = 6e9
    """SSD read bandwidth per node."""
    eviction: str = "leaf_lru"
    orders: bool = True
    """Whether planners move blocks ahead of use, as in a gateway."""
    homes: tuple[int, ...] = ()
    """Node of each engine, by number; -1 for none. Further engines repeat the list. Empty: nodes in turn."""
