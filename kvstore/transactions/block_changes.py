"""Changes that a catalog reports to its owner: blocks added and removed, and slots to be cleared."""

from __future__ import annotations

from typing import Literal

import msgspec

from kvstore.tiers.block_facts import BlockFacts, Medium


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
