"""Blocks held by node managers, under the gateway's block keys.

One table serves all pools: keys are seeded by served model and isolation domain, so keys of different pools never
collide.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvstore.index.prefix_index import PrefixIndex
from kvstore.index.prefix_match import PrefixMatch
from kvstore.index.target_table import TargetTable

_DRAM = "\0DRAM"
"""Suffix of a node's name for the bit that marks blocks in DRAM."""


class NodeHoldings:
    """Mutable: the index with two bits per node (block held, block in DRAM), `readable`, and `version`.

    Reports of nodes that are not members are ignored.
    """

    def __init__(self, max_bytes: int = 256 << 20) -> None:
        self._index = PrefixIndex(max_bytes)
        self._table = TargetTable()
        self._bits: dict[str, int] = {}
        self._dram_bits: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self.readable = 0
        """Bitset of the nodes (both bits) whose contents are completely known. Blocks are loaded only from them."""
        self.version = 0
        """Increases with each change of what readable nodes hold."""

    def __len__(self) -> int:
        return len(self._index)

    def join(self, node: str) -> None:
        """Add a node with unknown contents. Repeated calls change nothing."""
        if node not in self._bits:
            bit = self._bits[node] = self._table.assign(node)
            self._names[bit] = node
            self._dram_bits[node] = self._table.assign(node + _DRAM)

    def leave(self, node: str) -> None:
        """Remove a node and its blocks."""
        self.cleared(node)
        bit = self._bits.pop(node, None)
        if bit is not None:
            del self._names[bit], self._dram_bits[node]
            self._table.release(node)
            self._table.release(node + _DRAM)
            # `cleared` has removed both bits from the index.
            self._table.sweep()

    def stored(self, node: str, keys: Sequence[int], *, dram: bool = True) -> None:
        """Record blocks that a node stored, in DRAM or on SSD alone."""
        bit = self._bits.get(node)
        if bit is not None:
            self.version += 1
            self._index.store(bit, keys)
            if dram:
                self._index.store(self._dram_bits[node], keys)
            else:
                self._index.remove(self._dram_bits[node], keys)

    def removed(self, node: str, keys: Sequence[int]) -> None:
        """Record blocks that a node removed."""
        bit = self._bits.get(node)
        if bit is not None:
            self.version += 1
            self._index.remove(bit, keys)
            self._index.remove(self._dram_bits[node], keys)

    def complete(self, node: str) -> None:
        """Record that the node has reported all its blocks."""
        bit = self._bits.get(node)
        if bit is not None:
            self.version += 1
            self.readable |= 1 << bit | 1 << self._dram_bits[node]

    def cleared(self, node: str) -> None:
        """Forget a node's contents. It is not readable until it has reported all its blocks again."""
        bit = self._bits.get(node)
        if bit is not None:
            self.version += 1
            self.readable &= ~(1 << bit | 1 << self._dram_bits[node])
            self._index.clear(bit)
            self._index.clear(self._dram_bits[node])

    def is_readable(self, node: str) -> bool:
        """Return whether the node's contents are completely known."""
        bit = self._bits.get(node)
        return bit is not None and bool(self.readable >> bit & 1)

    def holds(self, node: str, key: int) -> bool:
        """Return whether a node holds a block, as far as known. True if its contents are unknown."""
        bit = self._bits.get(node)
        return bit is None or not self.is_readable(node) or bool(self._index.match([key], 1 << bit).groups)

    def where(self, key: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the readable nodes that hold a block in DRAM, and those that hold it on SSD alone."""
        match = self.match([key])
        held, dram = self.names(match.groups[0][1]) if match.groups else [], self.in_dram(match)
        return tuple(name for name in held if name in dram), tuple(name for name in held if name not in dram)

    def match(self, keys: Sequence[int]) -> PrefixMatch:
        """Return how many leading blocks each readable node holds, in total and in DRAM, by the nodes' bits."""
        return self._index.match(keys, self.readable)

    def names(self, nodes: int) -> list[str]:
        """Return the names of the nodes in a bitset, in order."""
        return sorted(name for bit, name in self._names.items() if nodes >> bit & 1)

    def in_dram(self, match: PrefixMatch) -> dict[str, int]:
        """Return how many leading blocks of a match each node has in DRAM, omitting nodes without any."""
        return {
            name: blocks for blocks, nodes in match.groups for name, bit in self._dram_bits.items() if nodes >> bit & 1
        }

    def check(self) -> None:
        """Raise AssertionError if the parts disagree."""
        self._index.check()
        self._table.check()
        if {name: bit for bit, name in self._names.items()} != self._bits:
            raise AssertionError("names and bits of nodes differ")
        if self._dram_bits.keys() != self._bits.keys():
            raise AssertionError("a node has one bit of two")
        if self.readable & ~sum(1 << bit for bit in (*self._names, *self._dram_bits.values())):
            raise AssertionError("a node is readable that is not there")
