"""The contents of simulated node managers: the production catalog with slots that hold no bytes, and the production
ledger that follows its events.

A block is written through to SSD at once, or at its first read if an advisory brought it, and a block read from SSD is
copied back to DRAM, as in a real node.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import msgspec

from kvstore.tiers.block_facts import DRAM, SSD, BlockFacts
from kvstore.transactions.block_catalog import BlockCatalog
from kvstore.transactions.block_record import BlockRecord
from kvstore.transactions.catalog_settings import CatalogSettings
from kvstore.transactions.cold_copies import drop_cold
from kvstore.transactions.expected_blocks import Expected
from kvstore.transfer.frames import CacheHint
from planning.kv_moves.replica_count import UNREAD_S
from routing.ledger.node_holdings import NodeHoldings
from routing.ledger.node_loads import NodeLoads

_KEY_BYTES = 32
_BLOCK_BYTES = 1
"""Slots hold no bytes here, so quotas count blocks."""


class Tiers(msgspec.Struct, frozen=True):
    """Leading blocks of a prompt on one node."""

    blocks: int
    dram: int
    """Number of these blocks in DRAM, counted from the first."""


class NodeCache:
    """The blocks on one node. Mutable: the catalog, and the number of blocks written to SSD since `take_written`."""

    def __init__(
        self, dram_blocks: int, ssd_blocks: int = 0, *, eviction: str = "leaf_lru", pin_share: float = 0.1
    ) -> None:
        slots = dram_blocks + ssd_blocks
        settings = CatalogSettings(
            dram_slots=dram_blocks,
            ssd_slots=ssd_blocks,
            slot_bytes=_BLOCK_BYTES,
            tenant_quota_bytes=slots,
            pin_quota_bytes=int(slots * pin_share),
            eviction=eviction,
        )
        # A fixed seed: a run depends on its input alone.
        self.catalog = BlockCatalog(settings, random.Random(0))
        self._written_through = ssd_blocks > 0
        self._written = 0

    def put(
        self,
        keys: Sequence[int],
        now: float,
        *,
        parent: int | None = None,
        hint: CacheHint = "default",
        pin_s: float = 0.0,
        expected: Expected | None = None,
    ) -> int:
        """Store consecutive blocks of a prompt after `parent` (None for its first blocks); return how many are new.

        Blocks of ephemeral prompts are not stored (Mooncake §5.2). `expected` marks blocks that an advisory brings.
        """
        if hint == "ephemeral":
            return 0
        catalog, names = self.catalog, [_name(key) for key in keys]
        catalog.expire(now)
        # Open until the others are created, which must not evict the prompt's own blocks.
        held = catalog.open_read(names)
        new = list[BlockRecord]()
        for index, (key, name) in enumerate(zip(keys, names, strict=True)):
            if catalog.find(name) is not None:
                continue
            before = names[index - 1] if index else b"" if parent is None else _name(parent)
            record = catalog.create(BlockFacts(name, _BLOCK_BYTES, parent=before, routing_key=key), now, expected)
            if record is None:
                break
            catalog.publish(record)
            new.append(record)
        catalog.close_read(held)
        # Last first, so that a parent is used more recently than its children.
        for record in reversed(new):
            catalog.unlock(record)
        if expected is None:
            self._write_through([record.facts.key for record in new])
        if hint == "context_cache":
            catalog.pin(names, now + pin_s, now)
        self._settle()
        return len(new)

    def holds(self, keys: Sequence[int]) -> Tiers:
        """Return which leading blocks of a prompt are held; this does not count as a use."""
        blocks = dram = 0
        for key in keys:
            record = self.catalog.find(_name(key))
            if record is None or not record.visible:
                break
            dram += DRAM in record.slots and dram == blocks
            blocks += 1
        return Tiers(blocks, dram)

    def promote(self, keys: Sequence[int], now: float, expected: Expected) -> None:
        """Copy held blocks that are only on SSD to DRAM, for an advisory; this does not count as a use."""
        self.catalog.expire(now)
        for key in keys:
            record = self.catalog.find(_name(key))
            if record is not None and DRAM not in record.slots:
                self._copy(record.facts.key, to_ssd=False, expected=expected)
        self._settle()

    def read(self, keys: Sequence[int], now: float) -> Tiers:
        """Use the held blocks of a prompt, and copy blocks that are only on SSD to DRAM; return the tiers before
        that.
        """
        self.catalog.expire(now)
        tiers = self.holds(keys)
        names = [_name(key) for key in keys[: tiers.blocks]]
        records = self.catalog.open_read(names)
        brought = self.catalog.expected.wanted(records)
        for record in records:
            if record is not None and DRAM not in record.slots:
                self._copy(record.facts.key, to_ssd=False)
        self.catalog.close_read(records)
        self._write_through(brought)
        self._settle()
        return tiers

    def drop(self, keys: Sequence[int], now: float) -> int:
        """Drop unneeded copies of a prompt's blocks that another node holds; return how many were dropped."""
        self.catalog.expire(now)
        dropped = drop_cold(self.catalog, [_name(key) for key in keys], now - UNREAD_S)
        self._settle()
        return len(dropped)

    def demote(self, keys: Sequence[int]) -> None:
        """Drop the DRAM copies of unused blocks that are on SSD."""
        # Last first: the eviction order keeps a block's parent.
        for key in reversed(keys):
            record = self.catalog.find(_name(key))
            if record is not None and SSD in record.slots and not record.busy:
                self.catalog.drop_copy(record, DRAM)
        self._settle()

    def take_written(self) -> int:
        """Return how many blocks were written to SSD since the last call."""
        written, self._written = self._written, 0
        return written

    def take_changed(self) -> dict[int, tuple[bool, bool]]:
        """Return, for each block that changed since the last call, whether it is held, and whether in DRAM."""
        changed = dict.fromkeys(change.facts.routing_key for change in self.catalog.take_changes())
        return {key: self._state(key) for key in changed}

    def check(self) -> None:
        """Raise AssertionError unless the catalog's parts are consistent."""
        self.catalog.check()

    def _state(self, key: int) -> tuple[bool, bool]:
        record = self.catalog.find(_name(key))
        held = record is not None and record.visible and bool(record.slots)
        return held, record is not None and held and DRAM in record.slots

    def _write_through(self, names: Sequence[bytes]) -> None:
        if self._written_through:
            for name in names:
                self._copy(name, to_ssd=True)
            self._written += len(names)

    def _copy(self, name: bytes, *, to_ssd: bool, expected: Expected | None = None) -> None:
        medium = SSD if to_ssd else DRAM
        record = self.catalog.open_fill(name, medium, expected)
        if record is not None:
            self.catalog.close_fill(record, medium, whole=True)

    def _settle(self) -> None:
        # Slots have no bytes here that a transfer might still read.
        for slot in self.catalog.take_cleared():
            self.catalog.slot_cleared(slot)


def _name(key: int) -> bytes:
    return key.to_bytes(_KEY_BYTES, "big")


class NodeStores:
    """The nodes' caches by name, and what the router knows of them. Mutable: both."""

    def __init__(
        self, nodes: Sequence[str], dram_blocks: int, ssd_blocks: int, block_bytes: int, *, eviction: str = "leaf_lru"
    ) -> None:
        self.block_bytes = block_bytes
        self.caches = {node: NodeCache(dram_blocks, ssd_blocks, eviction=eviction) for node in nodes}
        self.ledger = NodeLoads(NodeHoldings())
        for node in nodes:
            self.ledger.holdings.join(node)
            self.ledger.holdings.complete(node)

    def set_homes(self, homes: Mapping[str, str]) -> None:
        """Set each engine's own node."""
        self.ledger.set_nodes(homes, dict.fromkeys(self.caches, self.block_bytes))

    def publish_changes(self, node: str) -> Mapping[int, tuple[bool, bool]]:
        """Pass a node's changes to the ledger, as the node's events do shortly afterwards in production.

        Returns the changed blocks: whether each is held, and whether in DRAM.
        """
        changed = self.caches[node].take_changed()
        holdings = self.ledger.holdings
        holdings.removed(node, [key for key, (held, _) in changed.items() if not held])
        for dram in (True, False):
            holdings.stored(node, [key for key, state in changed.items() if state == (True, dram)], dram=dram)
        return changed

    def check(self) -> None:
        """Raise AssertionError if a part is inconsistent."""
        self.ledger.holdings.check()
        for cache in self.caches.values():
            cache.check()
