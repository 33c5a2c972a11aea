"""Count an index's blocks per tenant, so that no tenant displaces the blocks of others."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

ENTRY_BYTES = 110
"""Bytes per entry in addition to the index's: a dict slot at its usual load, with a shared key."""
_BATCH_SHARE = 128
"""One in this many entries is evicted at once when the limit is exceeded."""


class TenantBlocks:
    """Block keys by tenant, at most `max_keys` in total.

    The largest tenant's least recently used blocks are evicted first.

    So each tenant can use what others do not, and a tenant with at most an equal share loses no blocks to others.
    Mutable state: `_blocks` (per tenant, in order of last touch) and their count.
    """

    def __init__(self, max_keys: int) -> None:
        if max_keys < 1:
            raise ValueError(f"a limit of at least 1 key is needed, not {max_keys}")
        self._max_keys = max_keys
        self._blocks: dict[str, dict[int, None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def touch(self, tenant: str, keys: Sequence[int]) -> list[int]:
        """Record the blocks of a tenant's request in prompt order. Return the evicted ones."""
        blocks = self._blocks.setdefault(tenant, {})
        before = len(blocks)
        for key in reversed(keys):
            blocks.pop(key, None)
            blocks[key] = None
        self._count += len(blocks) - before
        return self._evict() if self._count > self._max_keys else []

    def clear(self) -> None:
        """Forget all blocks."""
        self._blocks.clear()
        self._count = 0

    def check(self) -> None:
        """Raise AssertionError unless the count is correct and within its limit."""
        if self._count != sum(map(len, self._blocks.values())) or self._count > self._max_keys:
            raise AssertionError(f"{self._count} keys are counted, of at most {self._max_keys}")

    def _evict(self) -> list[int]:
        gone: list[int] = []
        while self._count > self._max_keys:
            # By name among equals, so that the choice does not depend on who came first.
            most = max(self._blocks, key=lambda name: (len(self._blocks[name]), name))
            blocks = self._blocks[most]
            # In batches: the oldest entry of a dict is behind all those that were deleted before it.
            oldest = list(islice(blocks, max(1, self._max_keys // _BATCH_SHARE)))
            for key in oldest:
                del blocks[key]
            self._count -= len(oldest)
            others = [held for name, held in self._blocks.items() if name != most]
            # A block that other tenants' prompts begin with too stays in the index for them.
            gone += [key for key in oldest if not any(key in other for other in others)]
            if not blocks:
                del self._blocks[most]
        return gone
