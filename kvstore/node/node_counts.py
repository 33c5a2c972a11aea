"""Counters of a node's blocks."""

from __future__ import annotations

import msgspec

from kvstore.tiers.block_facts import DRAM, SSD


class NodeCounts(msgspec.Struct):
    """Counters of a node. Mutable; changed under the node's lock."""

    hits: dict[str, int] = msgspec.field(default_factory=lambda: {DRAM: 0, SSD: 0})
    misses: int = 0
    corrupt: dict[str, int] = msgspec.field(default_factory=lambda: {DRAM: 0, SSD: 0})
    repaired: int = 0
    """Corrupt copies of blocks of which another tier of the node held an intact copy."""
    stored: int = 0
    purged: int = 0
    pulled: int = 0
    shrunk: int = 0
    """Copies dropped because another node holds the blocks and they were not read here."""
    write_through_failed: int = 0
    """Blocks not written to SSD because the disk was full or failing."""
    write_through_skipped: int = 0
    """Blocks not written to SSD because the queue was full."""
    rejected: dict[str, int] = msgspec.field(default_factory=dict)
