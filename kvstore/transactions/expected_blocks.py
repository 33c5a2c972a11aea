"""Blocks brought to DRAM by a session's advisory, and their eviction order if the request does not arrive.

Blocks with an expired advisory are evicted before all others, then the block expected latest. Only blocks with a copy
on SSD are evicted this way: a node does not know whether other nodes hold a block that is only in its DRAM, so such a
block is treated like any other once its space is needed. So is a block after its first read.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping

import msgspec

from kvstore.tiers.block_facts import DRAM, SSD
from kvstore.transactions.block_record import BlockRecord


class Expected(msgspec.Struct, frozen=True):
    """When a block is expected to be used, and until when that is expected, in seconds of the node's clock."""

    at_s: float
    until_s: float


class ExpectedBlocks:
    """Expected blocks.

    Mutable: `_blocks` (key → its expectation, number), and two heaps that can contain used blocks.
    """

    def __init__(self) -> None:
        self._blocks: dict[bytes, tuple[Expected, int]] = {}
        self._last: list[tuple[float, int, bytes]] = []
        self._ends: list[tuple[float, int, bytes]] = []

    def __len__(self) -> int:
        return len(self._blocks)

    def __contains__(self, key: bytes) -> bool:
        return key in self._blocks

    def add(self, key: bytes, number: int, expected: Expected) -> None:
        """Expect a use of a block. Among one prompt's blocks, those with higher numbers are evicted first."""
        self._blocks[key] = expected, number
        heapq.heappush(self._last, (-expected.at_s, -number, key))
        heapq.heappush(self._ends, (expected.until_s, -number, key))
        # Entries of used blocks are dropped in bulk.
        if len(self._ends) > 2 * len(self._blocks) + 1024:
            self._last = [(-use.at_s, -count, name) for name, (use, count) in self._blocks.items()]
            self._ends = [(use.until_s, -count, name) for name, (use, count) in self._blocks.items()]
            heapq.heapify(self._last)
            heapq.heapify(self._ends)

    def used(self, key: bytes) -> None:
        """Drop the expectation, because the block was used or removed."""
        self._blocks.pop(key, None)

    def wanted(self, records: Iterable[BlockRecord | None]) -> list[bytes]:
        """Record that requests use blocks. Return the blocks that an advisory brought and that are only in DRAM."""
        brought = [record for record in records if record is not None and record.brought]
        for record in brought:
            record.brought = False
            self.used(record.facts.key)
        return [record.facts.key for record in brought if SSD not in record.slots]

    def victim(
        self, usual: bytes | None, expected: Expected | None, now: float, records: Mapping[bytes, BlockRecord]
    ) -> bytes | None:
        """Return the block to evict from DRAM for a new block, or None.

        `usual` is the victim in the tier's own order. `expected` marks a new block that is only expected to be used; it
        does not displace a block without another copy.
        """
        overdue = self._giving_way(self._ends, now, records)
        if overdue is not None:
            return overdue
        if expected is not None or (usual is not None and usual in self):
            last = self._giving_way(self._last, -expected.at_s if expected is not None else 0.0, records)
            if last is not None:
                return last
        if expected is None or usual is None:
            return usual
        # A block that may never be used displaces only a copy.
        return usual if usual not in self and SSD in records[usual].slots else None

    def check(self, in_dram: set[bytes]) -> None:
        """Raise AssertionError unless every block is in DRAM and in both orders."""
        if not self._blocks.keys() <= in_dram:
            raise AssertionError("a block is expected to be used in DRAM that is not there")
        for heap in (self._last, self._ends):
            if not self._blocks.keys() <= {key for _, _, key in heap}:
                raise AssertionError("a block has no place in the order")

    def _giving_way(
        self, heap: list[tuple[float, int, bytes]], below: float, records: Mapping[bytes, BlockRecord]
    ) -> bytes | None:
        """Return the first block of a heap, if it is below the limit and can be evicted.

        Blocks that are only in DRAM lose their expectation.
        """
        while heap and heap[0][0] < below:
            _, number, key = heap[0]
            if not self._is_current(key, -number):
                heapq.heappop(heap)
            elif not records[key].may_leave(DRAM):
                return None
            elif SSD in records[key].slots:
                return key
            else:
                self.used(key)
        return None

    def _is_current(self, key: bytes, number: int) -> bool:
        known = self._blocks.get(key)
        return known is not None and known[1] == number
