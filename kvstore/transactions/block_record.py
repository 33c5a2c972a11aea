"""One block on a node, and the operations in progress on it."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from kvstore.tiers.block_facts import DRAM, SSD, BlockFacts, Medium
from kvstore.tiers.eviction import eviction_order
from kvstore.tiers.free_slots import Tier


@dataclass(slots=True, eq=False)
class BlockRecord:
    """A block in the catalog, which alone changes it. Users of a block hold its record as their handle."""

    facts: BlockFacts
    number: int
    """Increases with each block that a node adds."""
    expires_at: float
    used_at: float
    """Time of arrival or of the last read, to the second."""
    brought: bool = False
    """Whether an advisory brought the block and no request has used it yet. On SSD it uses only a free slot: blocks
    there can be the only copies.
    """
    slots: dict[Medium, int] = field(default_factory=dict)
    filling: dict[Medium, int] = field(default_factory=dict)
    """Slots to which a copy is being written."""
    dead_slots: list[tuple[Medium, int, bool]] = field(default_factory=list)
    """Slots of dropped copies that can still be in use, and whether their bytes were never complete."""
    users: int = 0
    """Number of reads and writes in progress."""
    locks: int = 0
    """Number of transactions that have locked the block."""
    pinned_until: float = 0.0
    """0 if not pinned."""
    visible: bool = False
    """False until a transaction commits it."""
    held: bool = True
    """False after its removal. Its slots become free with its last user."""
    scrub: bool = False
    """Whether its bytes must be overwritten once its uses have ended."""

    @property
    def busy(self) -> bool:
        """Whether the block is in use or locked."""
        return self.users > 0 or self.locks > 0

    def may_leave(self, medium: Medium) -> bool:
        """Return whether its copy in a tier can be evicted. A pinned block needs a copy on SSD to leave DRAM."""
        offloaded = medium == DRAM and SSD in self.slots
        return self.visible and not self.busy and (not self.pinned_until or offloaded)


def order_by(name: str, tiers: Mapping[Medium, Tier], records: Iterable[BlockRecord], rng: random.Random) -> None:
    """Give the tiers a new eviction order. `records` come in the order of their arrival. Raises ValueError."""
    held = list(records)
    for medium, tier in tiers.items():
        tier.order = eviction_order(name, tier.free.slots, rng)
        there = [record for record in held if medium in record.slots]
        for record in there:
            tier.order.add(record.facts.key, record.facts.parent)
        for record in sorted(there, key=lambda item: item.used_at):
            tier.order.touch([record.facts.key])
            tier.order.set_evictable(record.facts.key, record.may_leave(medium))


class BlockChange(msgspec.Struct, frozen=True, gc=False):
    """A block that was added to a tier or removed from it."""

    kind: Literal["stored", "removed"]
    facts: BlockFacts
    medium: Medium


class ClearedSlot(msgspec.Struct, frozen=True, gc=False):
    """A slot whose block was removed. It is reusable after its owner calls `slot_cleared`."""

    medium: Medium
    slot: int
    facts: BlockFacts
    scrub: bool
