"""One block that a node holds, and the operations in progress on it."""

from __future__ import annotations

from dataclasses import dataclass, field

from kvstore.tiers.block_facts import DRAM, SSD, BlockFacts, Medium


@dataclass(slots=True, eq=False)
class BlockRecord:
    """Mutable; only the catalog changes it. Users of a block hold its record as their handle."""

    facts: BlockFacts
    number: int
    """Increases with each block that a node adds."""
    expires_at: float
    used_at: float
    """When it arrived, or was read last, to the second."""
    brought: bool = False
    """An advisory brought it, and no request has asked for it yet. On SSD it takes only a free slot: blocks there may
    have no other copy.
    """
    slots: dict[Medium, int] = field(default_factory=dict)
    filling: dict[Medium, int] = field(default_factory=dict)
    """Slots that a copy is being written to."""
    dead_slots: list[tuple[Medium, int, bool]] = field(default_factory=list)
    """Slots of copies that were dropped but may still be in use, and whether their bytes were never complete."""
    users: int = 0
    """Reads and writes of bytes in progress."""
    locks: int = 0
    """Transactions that have locked the block."""
    pinned_until: float = 0.0
    """0: not pinned."""
    visible: bool = False
    """False: a transaction has not committed it."""
    held: bool = True
    """False: the catalog forgot it; its slots come free with its last user."""
    scrub: bool = False
    """Its bytes are to be overwritten once its uses have ended."""

    @property
    def busy(self) -> bool:
        """Whether the block is in use or locked."""
        return self.users > 0 or self.locks > 0

    def may_leave(self, medium: Medium) -> bool:
        """Return whether its copy in a tier may leave; a pinned one leaves DRAM only while that on SSD stays."""
        offloaded = medium == DRAM and SSD in self.slots
        return self.visible and not self.busy and (not self.pinned_until or offloaded)
