"""Sizes and limits of one node's storage."""

from __future__ import annotations

import msgspec


class CatalogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes and limits of one node."""

    dram_slots: int
    ssd_slots: int
    """0 for no SSD tier."""
    slot_bytes: int
    disk_reserve_bytes: int | None = None
    """Bytes of the SSD tier's file system left to other programs, None for the default share of its size."""
    tenant_quota_bytes: int
    pin_quota_bytes: int
    max_age_s: float = 86_400.0
    """Maximum age of a block, unless it is pinned for longer."""
    max_pin_s: float = 86_400.0
    eviction: str = "leaf_lru"
