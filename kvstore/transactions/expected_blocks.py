"""Blocks that came to DRAM because a session announced a request, and in which order they leave without one.

The block that is expected last leaves first, and one whose time limit is over before all others. But only copies give
way: a node cannot determine whether others still hold a block that it has in DRAM alone, so such a block is like any
other once its room is needed. So is a block from its first read on.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping

import msgspec

from kvstore.tiers.block_facts import DRAM, SSD
from kvstore.transactions.block_record import BlockRecord


class Expected(msgspec.Struct, frozen=True):
    """When blocks are expected to be used, and how long that expectation holds; seconds of the node's clock."""

    at_s: float
    until_s: float


class ExpectedBlocks:
    """Mutable: `_blocks` (key → its expectation, number), and two heaps that may name some that were used."""

    def __init__(self) -> None:
        self._blocks: dict[bytes, tuple[Expected, int]] = {}
        self._last: list[tuple[float, int, bytes]] = []
        self._ends: list[tuple[float, int, bytes]] = []

    def __len__(self) -> int:
        return len(self._blocks)

    def __contains__(self, key: bytes) -> bool:
        return key in self._blocks

    def add(self, key: bytes, number: int, expected: Expected) -> None:
        """Expect a use of a block; of one prompt's blocks those with higher numbers leave first."""
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
        """Drop the expectation: the block was used, or left."""
        self._blocks.pop(key, None)

    def wanted(self, records: Iterable[BlockRecord | None]) -> list[bytes]:
        """Note that requests ask for blocks; returns those that an advisory brought and that are in DRAM alone."""
        brought = [record for record in records if record is not None and record.brought]
        for record in brought:
            record.brought = False
            self.used(record.facts.key)
        return [record.facts.key for record in brought if SSD not in record.slots]

    def victim(
        self, usual: bytes | None, expected: Expected | None, now: float, records: Mapping[bytes, BlockRecord]
    ) -> bytes | None:
        """Return the block that leaves DRAM for another one, which may be only `expected` to be used; None: none may.

        `usual`: the victim by the tier's own order. A block that is only expected does not displace one that would be
        lost.
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
        """Return the first block of an order, where it is below a limit and may leave; None: there is none.

        Blocks in DRAM alone are no longer expected.
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
