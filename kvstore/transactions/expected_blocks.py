"""Blocks that came to DRAM because a session announced a request, and in which order they leave without one.

The next session to ask keeps its blocks longest: the one expected last leaves first, and one whose time limit is over
before all others. A block that somebody reads is like any other from then on.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping

import msgspec

from kvstore.tiers.block_facts import DRAM, SSD
from kvstore.transactions.block_record import BlockRecord


class Expected(msgspec.Struct, frozen=True):
    """When blocks are expected to be used, and until when that is believed; seconds of the node's clock."""

    at_s: float
    until_s: float


class ExpectedBlocks:
    """Mutable: `_blocks` (key → what is expected, number), and two heaps that may name some that were used."""

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
        if len(self._ends) > 2 * len(self._blocks) + 1024:
            self._last = [(-each.at_s, -count, name) for name, (each, count) in self._blocks.items()]
            self._ends = [(each.until_s, -count, name) for name, (each, count) in self._blocks.items()]
            heapq.heapify(self._last)
            heapq.heapify(self._ends)

    def used(self, key: bytes) -> None:
        """Expect no more: the block was used, or left."""
        self._blocks.pop(key, None)

    def overdue(self, now: float) -> bytes | None:
        """Return a block whose time limit is over; None: there is none."""
        self._clean(self._ends)
        return self._ends[0][2] if self._ends and self._ends[0][0] <= now else None

    def last(self, than_s: float) -> bytes | None:
        """Return the block expected last, where that is later than `than_s`; None: there is none."""
        self._clean(self._last)
        return self._last[0][2] if self._last and -self._last[0][0] > than_s else None

    def victim(
        self, usual: bytes | None, expected: Expected | None, now: float, records: Mapping[bytes, BlockRecord]
    ) -> bytes | None:
        """Return the block that leaves DRAM for another one, which may be only `expected` to be used; None: none may.

        `usual`: whom the tier's own order names. One that perhaps nobody asks for takes no place of a block that
        would be lost.
        """
        overdue = self.overdue(now)
        if overdue is not None and records[overdue].may_leave(DRAM):
            return overdue
        if expected is None and (usual is None or usual not in self):
            return usual
        last = self.last(expected.at_s if expected is not None else 0.0)
        if last is not None and records[last].may_leave(DRAM):
            return last
        if expected is None or usual is None:
            return usual
        return usual if usual not in self and SSD in records[usual].slots else None

    def check(self, in_dram: set[bytes]) -> None:
        """Raise AssertionError unless every block lies in DRAM and both orders know it."""
        if not self._blocks.keys() <= in_dram:
            raise AssertionError("a block is expected to be used in DRAM that is not there")
        for heap in (self._last, self._ends):
            if not self._blocks.keys() <= {key for _, _, key in heap}:
                raise AssertionError("a block has no place in the order")

    def _clean(self, heap: list[tuple[float, int, bytes]]) -> None:
        while heap and not self._stands(heap[0][2], -heap[0][1]):
            heapq.heappop(heap)

    def _stands(self, key: bytes, number: int) -> bool:
        known = self._blocks.get(key)
        return known is not None and known[1] == number
