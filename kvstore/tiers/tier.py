"""One tier of a node: its free slots and its eviction order."""

from __future__ import annotations

from kvstore.tiers.eviction import EvictionOrder
from kvstore.tiers.free_slots import FreeSlots


class Tier:
    """One tier. Mutable; only the catalog changes it."""

    def __init__(self, slots: int, order: EvictionOrder) -> None:
        self.free = FreeSlots(slots)
        self.order = order
        self.evicted = 0
