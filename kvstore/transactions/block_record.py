"""One block that a node holds, and the operations in progress on it."""

from __future__ import annotations

from kvstore.tiers.block_facts import DRAM, SSD, BlockFacts, Medium


class BlockRecord:
    """Mutable; only the catalog changes it. Users of a block hold its record as their handle."""

    __slots__ = (
        "brought",
        "dead_slots",
        "expires_at",
        "facts",
        "filling",
        "held",
        "locks",
        "number",
        "pinned_until",
        "scrub",
        "slots",
        "used_at",
        "users",
        "visible",
    )

    def __init__(
        self, facts: BlockFacts, number: int, expires_at: float, used_at: float, *, brought: bool = False
    ) -> None:
        self.facts = facts
        self.number = number
        """Grows with each block that a node takes in."""
        self.expires_at = expires_at
        self.used_at = used_at
        """When it came, or was read last, to the second."""
        self.brought = brought
        """It came by an advisory, and nobody has asked for it. On SSD it takes only a free slot: blocks there may lie
        nowhere else."""
        self.slots: dict[Medium, int] = {}
        self.filling: dict[Medium, int] = {}
        """Slots that a copy is being written to."""
        self.dead_slots: list[tuple[Medium, int, bool]] = []
        """Slots of copies that were dropped but may still be in use, and whether their bytes never came whole."""
        self.users = 0
        """Reads and writes of bytes that are under way."""
        self.locks = 0
        """Transactions that have locked the block."""
        self.pinned_until = 0.0
        """0: not pinned."""
        self.visible = False
        """False: a transaction has not committed it."""
        self.held = True
        """False: the catalog forgot it; its slots come free with its last user."""
        self.scrub = False
        """Its bytes are to be overwritten once nobody uses them."""

    @property
    def busy(self) -> bool:
        """Whether somebody uses or has locked the block."""
        return self.users > 0 or self.locks > 0

    def may_leave(self, medium: Medium) -> bool:
        """Return whether its copy in a tier may go; a pinned one leaves DRAM only while that on SSD stays."""
        offloaded = medium == DRAM and SSD in self.slots
        return self.visible and not self.busy and (not self.pinned_until or offloaded)
