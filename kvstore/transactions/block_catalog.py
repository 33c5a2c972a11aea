"""The catalog of a node's blocks: their tiers and slots, and the blocks to evict when space is needed.

The catalog decides but moves no bytes: it assigns slots to be filled and names slots to be cleared; its owner does both
and reports completion. Blocks that are in use, locked, or not yet committed are never evicted. A pinned block is
evicted from DRAM only if a copy on SSD remains, and never from SSD (Mooncake §5.2: offloaded instead of evicted).
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterable, Sequence

import msgspec

from kvstore.tiers.block_facts import DRAM, SSD, BlockFacts, Medium
from kvstore.tiers.block_header import BlockHeader, restored_blocks
from kvstore.tiers.eviction import eviction_order
from kvstore.tiers.free_slots import FreeSlots, Tier
from kvstore.transactions.block_record import BlockChange, BlockRecord, ClearedSlot, order_by
from kvstore.transactions.catalog_settings import CatalogSettings
from kvstore.transactions.expected_blocks import Expected, ExpectedBlocks
from kvstore.transactions.tenant_usage import TenantUsage


class BlockCatalog:
    """Blocks of a node. Mutable state: `_records` (key → record, in arrival order), `_named` (routing key → keys),
    `_tiers`, `usage`, `_due` (heap of times when a pin or a block can expire); `_changes`, `_cleared`, for the owner;
    `_clearing` and `_unclean`, slots that the owner is overwriting or could not overwrite.
    """

    def __init__(self, settings: CatalogSettings, rng: random.Random) -> None:
        self.settings = settings
        self.usage = TenantUsage(settings.tenant_quota_bytes, settings.pin_quota_bytes)
        sizes: dict[Medium, int] = {DRAM: settings.dram_slots, SSD: settings.ssd_slots}
        self._tiers = {
            medium: Tier(slots, eviction_order(settings.eviction, slots, rng)) for medium, slots in sizes.items()
        }
        self._records: dict[bytes, BlockRecord] = {}
        self._named: dict[int, tuple[bytes, ...]] = {}
        self._due: list[tuple[float, int, bytes]] = []
        self._rng, self._number, self._now = rng, 0, 0.0
        self._changes: list[BlockChange] = []
        self._cleared: list[ClearedSlot] = []
        self._clearing: dict[tuple[Medium, int], ClearedSlot] = {}
        self._unclean: list[ClearedSlot] = []
        self._leaving: set[BlockRecord] = set()
        self.expected = ExpectedBlocks()

    # What is held ---------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._records)

    def find(self, key: bytes) -> BlockRecord | None:
        """Return the record of a block, committed or not, or None."""
        return self._records.get(key)

    def page(self, after: int, limit: int) -> list[BlockRecord]:
        """Return up to `limit` committed blocks with numbers above `after`, in order."""
        records = (record for record in self._records.values() if record.number > after and record.visible)
        return [record for record, _ in zip(records, range(limit), strict=False)]

    def called(self, routing_keys: Sequence[int], limit: int) -> list[BlockRecord]:
        """Return up to `limit` committed payloads of the blocks with these routing keys, in this order."""
        records = (self._records[key] for name in routing_keys for key in self._named.get(name, ()))
        visible = (record for record in records if record.visible)
        return [record for record, _ in zip(visible, range(limit), strict=False)]

    def used_slots(self, medium: Medium) -> int:
        """Return the number of taken slots in a tier."""
        free = self._tiers[medium].free
        return free.slots - len(free) - free.withheld

    def free_slots(self, medium: Medium) -> FreeSlots:
        """Return the free slots of a tier."""
        return self._tiers[medium].free

    def evicted(self, medium: Medium) -> int:
        """Return how many copies were evicted from a tier."""
        return self._tiers[medium].evicted

    def is_followed(self, record: BlockRecord) -> bool:
        """Return whether a tier that holds a block also holds its successor in the prompt."""
        return not all(self._tiers[medium].order.is_leaf(record.facts.key) for medium in record.slots)

    def take_changes(self) -> list[BlockChange]:
        """Return the changes since the last call."""
        changes, self._changes = self._changes, []
        return changes

    def take_cleared(self) -> list[ClearedSlot]:
        """Return the slots whose blocks were removed since the last call."""
        cleared, self._cleared = self._cleared, []
        self._clearing.update({(item.medium, item.slot): item for item in cleared})
        return cleared

    def slot_cleared(self, slot: ClearedSlot) -> None:
        """Make a slot reusable."""
        self._clearing.pop((slot.medium, slot.slot), None)
        self._tiers[slot.medium].free.give(slot.slot, None if slot.scrub else slot.facts.tenant)

    def slot_not_cleared(self, slot: ClearedSlot) -> None:
        """Withhold a slot that could not be overwritten: it can contain another tenant's bytes."""
        self._clearing.pop((slot.medium, slot.slot), None)
        self._unclean.append(slot)

    def retry_clearing(self, most: int) -> None:
        """Report up to `most` slots again that could not be overwritten."""
        self._cleared.extend(self._unclean[:most])
        del self._unclean[:most]

    @property
    def unclean(self) -> int:
        """Number of slots that could not be overwritten yet."""
        return len(self._unclean)

    # Reads ----------------------------------------------------------------------------------------

    def open_read(self, keys: Sequence[bytes], *, counted: bool = True) -> list[BlockRecord | None]:
        """Return the committed blocks among these, in use until `close_read`. Only if `counted`, it is a new use."""
        records = [record if (record := self._records.get(key)) and record.visible else None for key in keys]
        for tier in self._tiers.values() if counted else ():
            tier.order.touch(keys)
        for record in records:
            if record is not None:
                self.expected.used(record.facts.key)
                record.used_at = self._now
                record.users += 1
                self._relist(record)
        return records

    def close_read(self, records: Iterable[BlockRecord | None]) -> None:
        """End the uses. Children become less recently used than their parents."""
        for record in reversed([item for item in records if item is not None]):
            record.users -= 1
            self._settle(record)

    # New blocks and copies ------------------------------------------------------------------------

    def evict_by(self, name: str) -> None:
        """Evict by another rule. It knows of each block only its last use. Raises ValueError."""
        order_by(name, self._tiers, self._records.values(), self._rng)

    def can_take(self, blocks: int) -> bool:
        """Return whether this many DRAM slots can be freed."""
        tier = self._tiers[DRAM]
        return len(tier.free) + len(tier.order) >= blocks

    def make_room_for(self, tenant: str, length: int) -> bool:
        """Evict the tenant's blocks until its quota allows `length` more bytes. Return False if it cannot."""
        while (victim := self.usage.victim(tenant, length)) is not None:
            self.forget(self._records[victim])
        return self.usage.fits(tenant, length)

    def create(self, facts: BlockFacts, now: float, expected: Expected | None = None) -> BlockRecord | None:
        """Add a new block, uncommitted and locked once, with a DRAM slot to fill. Return None if there is no room."""
        self._now = max(now, self._now)
        slot = self.take_slot(DRAM, expected)
        if slot is None:
            return None
        self._number += 1
        record = BlockRecord(facts, self._number, now + self.settings.max_age_s, now, brought=expected is not None)
        record.locks = 1
        self._take_in(record)
        self._place(record, DRAM, slot)
        if expected is not None:
            self.expected.add(facts.key, record.number, expected)
        return record

    def publish(self, record: BlockRecord) -> None:
        """Make a complete block visible. A block that was purged in the meantime stays invisible."""
        if not record.held:
            return
        record.visible = True
        self._note_end(record)
        self._changes.extend(BlockChange("stored", record.facts, medium) for medium in record.slots)
        self._relist(record)

    def describe(self, record: BlockRecord, facts: BlockFacts) -> None:
        """Record the checksum of an uncommitted block."""
        record.facts = facts

    def rename(self, record: BlockRecord, routing_key: int) -> None:
        """Change a visible block's routing key: events remove it under the old key and add it under the new one."""
        old = record.facts
        self._unname(record)
        record.facts = msgspec.structs.replace(old, routing_key=routing_key)
        self._name(record)
        if old.routing_key:
            self._changes.extend(BlockChange("removed", old, medium) for medium in record.slots)
        self._changes.extend(BlockChange("stored", record.facts, medium) for medium in record.slots)

    def open_fill(self, key: bytes, medium: Medium, expected: Expected | None = None) -> BlockRecord | None:
        """Reserve a slot of another tier for a copy, in use until `close_fill`. Return None if not possible."""
        record = self._records.get(key)
        if record is None or not record.visible or medium in record.slots or medium in record.filling:
            return None
        record.users += 1
        self._relist(record)
        slot = self._tiers[SSD].free.take() if medium == SSD and record.brought else self.take_slot(medium, expected)
        if slot is None:
            record.users -= 1
            self._settle(record)
            return None
        if expected is not None:
            self.expected.add(key, record.number, expected)
        record.filling[medium] = slot
        return record

    def close_fill(self, record: BlockRecord, medium: Medium, *, whole: bool) -> None:
        """End a copy. If complete, the block is now also in that tier."""
        slot = record.filling.pop(medium)
        record.users -= 1
        if whole and record.held:
            self._place(record, medium, slot)
            self._changes.append(BlockChange("stored", record.facts, medium))
        else:
            self.expected.used(record.facts.key)
            # Part of another tenant's block may be left there.
            record.dead_slots.append((medium, slot, True))
        self._settle(record)

    def lock(self, record: BlockRecord) -> None:
        """Lock a block for a transaction."""
        record.locks += 1
        self._relist(record)

    def unlock(self, record: BlockRecord) -> None:
        """Release a transaction's lock."""
        record.locks -= 1
        self._settle(record)

    def begin_use(self, record: BlockRecord) -> None:
        """Record that bytes of an uncommitted block are being written."""
        record.users += 1

    # Blocks that leave ----------------------------------------------------------------------------

    def forget(self, record: BlockRecord, *, scrub: bool = False) -> None:
        """Remove a block from all tiers. Its slots become free when its uses have ended."""
        record.scrub = record.scrub or scrub
        if not record.held:
            return
        record.held = False
        for medium in list(record.slots):
            self._displace(record, medium)
        if record.pinned_until:
            self.usage.unpin(record)
            record.pinned_until = 0.0
        self.usage.remove(record)
        del self._records[record.facts.key]
        self.expected.used(record.facts.key)
        self._unname(record)
        self._leaving.add(record)
        self._settle(record)

    def drop_copy(self, record: BlockRecord, medium: Medium) -> None:
        """Remove one copy of a block, and the block with its last copy."""
        if not record.held or medium not in record.slots:
            return
        if len(record.slots) == 1:
            self.forget(record)
            return
        self._displace(record, medium)
        self._settle(record)

    def purge(self, tenant: str) -> int:
        """Remove and overwrite all blocks of a tenant and the remains of earlier ones. Return the number of blocks."""
        mine = [record for record in self._records.values() if record.facts.tenant == tenant]
        for record in mine:
            self.forget(record, scrub=True)
        for record in self._leaving:
            record.scrub = record.scrub or record.facts.tenant == tenant
        self._cleared = [
            msgspec.structs.replace(item, scrub=True) if item.facts.tenant == tenant else item for item in self._cleared
        ]
        for medium, tier in self._tiers.items():
            no_block = BlockFacts(b"", 0, tenant=tenant)
            residue = tier.free.take_residue(tenant)
            self._cleared.extend(ClearedSlot(medium, slot, no_block, scrub=True) for slot in residue)
        return len(mine)

    def is_leaving(self, tenant: str) -> bool:
        """Return whether a removed block of the tenant is still in use, or any slot is being overwritten."""
        overwritten = any(item.scrub for item in (*self._clearing.values(), *self._cleared))
        return overwritten or any(record.facts.tenant == tenant for record in self._leaving)

    def pin(self, keys: Sequence[bytes], until: float, now: float) -> int:
        """Pin blocks until this time, within the longest pin and their tenants' quotas. Return the number pinned."""
        until, pinned = min(until, now + self.settings.max_pin_s), 0
        for key in keys:
            record = self._records.get(key)
            if record is None or not record.visible or not (record.pinned_until or self.usage.pin(record)):
                continue
            pinned += 1
            record.pinned_until = max(record.pinned_until, until)
            record.expires_at = max(record.expires_at, until)
            self._note_end(record)
            self._relist(record)
        return pinned

    def unpin(self, keys: Sequence[bytes]) -> int:
        """End the pins of blocks. Return how many were pinned."""
        pinned = [record for key in keys if (record := self._records.get(key)) and record.pinned_until]
        for record in pinned:
            self._end_pin(record)
        return len(pinned)

    def expire(self, now: float) -> None:
        """End expired pins, and remove blocks that are too old."""
        self._now = max(now, self._now)
        while self._due and self._due[0][0] <= now:
            _, number, key = heapq.heappop(self._due)
            record = self._records.get(key)
            if record is None or record.number != number:
                continue
            if record.pinned_until and record.pinned_until <= now:
                self._end_pin(record)
            if record.expires_at <= now:
                self.forget(record)
            else:
                self._note_end(record)

    # After a restart ------------------------------------------------------------------------------

    def restore(self, headers: Iterable[tuple[int, BlockHeader]], now: float, epoch_offset_s: float) -> None:
        """Restore the contents of the SSD tier. `now` + `epoch_offset_s` is the time since the epoch."""
        self._now = max(now, self._now)
        newest, residue = restored_blocks(headers, now + epoch_offset_s)
        self._tiers[SSD].free.occupy({slot for slot, _ in newest}, residue)
        for slot, header in newest:
            self._number += 1
            record = BlockRecord(header.facts, self._number, header.expires_at - epoch_offset_s, now)
            self._take_in(record)
            self._place(record, SSD, slot)
            self.publish(record)
            if header.pinned_until - epoch_offset_s > now:
                self.pin([header.facts.key], header.pinned_until - epoch_offset_s, now)

    def check(self) -> None:
        """Raise AssertionError if slots, orders, users, and quotas disagree."""
        records = list(self._records.values())
        self.usage.check(records)
        everyone = [*records, *self._leaving]
        to_clear = [*self._cleared, *self._clearing.values(), *self._unclean]
        for medium, tier in self._tiers.items():
            taken = [record.slots[medium] for record in records if medium in record.slots]
            taken += [record.filling[medium] for record in everyone if medium in record.filling]
            taken += [slot for record in everyone for where, slot, _ in record.dead_slots if where == medium]
            taken += [item.slot for item in to_clear if item.medium == medium]
            if len(set(taken)) != len(taken):
                raise AssertionError(f"two blocks share a slot of {medium}")
            tier.free.check(set(taken))
            tier.order.check()
            if len(tier.order) != sum(record.may_leave(medium) for record in records if medium in record.slots):
                raise AssertionError(f"a block of {medium} could never leave, or a used one could")
        self.expected.check({key for key, item in self._records.items() if DRAM in item.slots or DRAM in item.filling})
        named = {(name, key) for name, keys in self._named.items() for key in keys}
        if named != {(item.facts.routing_key, item.facts.key) for item in records if item.facts.routing_key}:
            raise AssertionError("what gateways call the blocks is not what they are called")
        for record in records:
            if record.users < 0 or record.locks < 0 or not (record.slots or record.filling):
                raise AssertionError("a block lies nowhere, or is used less than never")

    # Inner ----------------------------------------------------------------------------------------

    def _take_in(self, record: BlockRecord) -> None:
        self._records[record.facts.key] = record
        self.usage.add(record)
        self._name(record)

    def _name(self, record: BlockRecord) -> None:
        name = record.facts.routing_key
        if name:
            self._named[name] = (*self._named.get(name, ()), record.facts.key)

    def _unname(self, record: BlockRecord) -> None:
        name = record.facts.routing_key
        left = tuple(key for key in self._named.pop(name, ()) if key != record.facts.key)
        if left:
            self._named[name] = left

    def take_slot(self, medium: Medium, expected: Expected | None = None) -> int | None:
        """Return a free slot, or that of an evicted block, as taken. None if there is none."""
        tier = self._tiers[medium]
        if (slot := tier.free.take()) is not None:
            return slot
        victim = tier.order.victim()
        if medium == DRAM and (expected is not None or len(self.expected)):
            victim = self.expected.victim(victim, expected, self._now, self._records)
        if victim is None:
            return None
        tier.evicted += 1
        record = self._records[victim]
        slot = record.slots[medium]
        # A victim is not in use, so that its slot goes to the new block at once, without being cleared.
        self._displace(record, medium)
        record.dead_slots.remove((medium, slot, False))
        if not record.slots:
            self.forget(record)
        else:
            self._relist(record)
        return slot

    def _place(self, record: BlockRecord, medium: Medium, slot: int) -> None:
        record.slots[medium] = slot
        self._tiers[medium].order.add(record.facts.key, record.facts.parent)
        self._relist(record)

    def _displace(self, record: BlockRecord, medium: Medium) -> None:
        # The bytes of an uncommitted block may not have arrived, so that another tenant's block may still be there.
        record.dead_slots.append((medium, record.slots.pop(medium), not record.visible))
        self._tiers[medium].order.remove(record.facts.key)
        if medium == DRAM:
            self.expected.used(record.facts.key)
        if record.visible:
            self._changes.append(BlockChange("removed", record.facts, medium))

    def _settle(self, record: BlockRecord) -> None:
        """Update a block after a use: list it again, and free its unused slots."""
        if not record.users:
            self._cleared.extend(
                ClearedSlot(medium, slot, record.facts, record.scrub or failed)
                for medium, slot, failed in record.dead_slots
            )
            record.dead_slots.clear()
            self._leaving.discard(record)
        if record.held:
            self._relist(record)

    def _relist(self, record: BlockRecord) -> None:
        key = record.facts.key
        for medium in record.slots:
            self._tiers[medium].order.set_evictable(key, record.may_leave(medium))
        free = record.visible and not record.busy and not record.pinned_until
        self.usage.set_evictable(record, free)

    def _note_end(self, record: BlockRecord) -> None:
        """Schedule a check for the expiry of the block or its pin. Entries of removed blocks are dropped in bulk."""
        heapq.heappush(self._due, (record.pinned_until or record.expires_at, record.number, record.facts.key))
        if len(self._due) > 2 * len(self._records) + 1024:
            records = self._records.items()
            self._due = [(record.pinned_until or record.expires_at, record.number, key) for key, record in records]
            heapq.heapify(self._due)

    def _end_pin(self, record: BlockRecord) -> None:
        self.usage.unpin(record)
        record.pinned_until = 0.0
        self._relist(record)
