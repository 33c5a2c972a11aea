"""Select the blocks that a node restores from the headers of an SSD tier."""

from __future__ import annotations

from collections.abc import Iterable

from kvstore.tiers.block_header import BlockHeader


def restored_blocks(
    headers: Iterable[tuple[int, BlockHeader]], now_epoch_s: float
) -> tuple[list[tuple[int, BlockHeader]], dict[int, str]]:
    """Return slots with blocks to restore, oldest first, and slots with the tenants of remaining bytes.

    Of two headers with one key, the newer one is valid. Expired blocks are not restored.
    """
    newest: dict[bytes, tuple[int, BlockHeader]] = {}
    tenants: dict[int, str] = {}
    for slot, header in headers:
        tenants[slot] = header.facts.tenant
        known = newest.get(header.facts.key)
        alive = header.stored and header.expires_at > now_epoch_s
        if alive and (known is None or known[1].age_order < header.age_order):
            newest[header.facts.key] = slot, header
    # A block is linked only to a parent that was added before it (BlockTrees).
    return sorted(newest.values(), key=lambda item: item[1].age_order), tenants
