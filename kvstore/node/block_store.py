"""Move the bytes of one node. The catalog decides under a lock; arena and slot file are accessed without it."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from kvstore.node.disk_room import DiskRoom
from kvstore.node.disk_space import DiskUse
from kvstore.node.node_counts import NodeCounts
from kvstore.tiers.arena import Arena
from kvstore.tiers.block_facts import DRAM, SSD, BlockFacts, Medium, checksum_of
from kvstore.tiers.block_header import BlockHeader
from kvstore.tiers.slot_file import SlotFile
from kvstore.transactions.block_catalog import BlockCatalog
from kvstore.transactions.block_record import BlockChange, BlockRecord, ClearedSlot
from kvstore.transactions.catalog_settings import CatalogSettings
from kvstore.transactions.cold_copies import drop_cold
from kvstore.transactions.expected_blocks import Expected
from kvstore.transactions.pins import PinnedPrefix, pinned_prefixes
from kvstore.transactions.transactions import Allocation, TransactionRejection, Transactions

_PURGE_CHECKS, _PURGE_CHECK_S = 3500, 0.01
"""A purge waits for uses of the tenant's blocks, slightly longer than the timeout of a silent client."""
_RETRIED_PER_TICK = 16
"""Maximum slots retried per tick whose overwriting failed on disk."""


class Filling(NamedTuple):
    """A block of a transaction, and the destination of its bytes."""

    record: BlockRecord
    view: memoryview


class BlockStore:
    """Stores blocks of a node, for any number of threads. `lock` guards `catalog`, `transactions`, and `counts`.

    Every change ends with `settle`. Only threads that marked a block as busy in the catalog access its bytes, so the
    bytes need no lock.
    """

    def __init__(
        self,
        settings: CatalogSettings,
        directory: Path | None,
        clock: Callable[[], float],
        epoch_offset_s: float,
        incarnation: int,
        on_changes: Callable[[list[BlockChange]], None] = lambda _changes: None,
    ) -> None:
        self.clock, self._epoch_offset_s, self.incarnation = clock, epoch_offset_s, incarnation
        self._on_changes = on_changes
        self.on_stored: Callable[[bytes], None] = lambda _key: None
        """Called with the key of each committed block, to write it through to SSD."""
        self.lock, self.eviction = threading.Lock(), settings.eviction
        self._pause = threading.Event()
        self.catalog = BlockCatalog(settings, random.Random(incarnation))
        self.transactions = Transactions(self.catalog)
        self.counts = NodeCounts()
        self.arena = Arena(settings.dram_slots, settings.slot_bytes)
        self.slot_file = SlotFile(directory, settings.ssd_slots, settings.slot_bytes) if directory else None
        self.room: DiskRoom | None = None
        if self.slot_file is not None:
            self.catalog.restore(self.slot_file.scan(), clock(), epoch_offset_s)
            self.settle()
            self.room = DiskRoom(self.catalog, self.slot_file, self.lock, clock, settings.disk_reserve_bytes)
        self.disk = DiskUse(clock)

    @contextmanager
    def reading(
        self, keys: Sequence[bytes], max_bytes: int, *, counted: bool = True
    ) -> Iterator[list[tuple[BlockFacts, memoryview] | None]]:
        """Yield as many of the first blocks as fit into `max_bytes`. They stay in place until the context ends.

        Unless `counted`, the read continues another one, and is no further use of the blocks. The receiver verifies
        the checksums of bytes from DRAM. Bytes from SSD are verified here.
        """
        with self.lock:
            records = self.catalog.open_read(self._fitting(keys, max_bytes), counted=counted)
            # Blocks that an advisory brought are copied to SSD once a request has asked for them.
            wanted = self.catalog.expected.wanted(records)
            slots = [record.slots.get(DRAM) if record else None for record in records]
            if counted:
                self.counts.misses += records.count(None)
                self.counts.hits[DRAM] += len(slots) - slots.count(None)
        try:
            yield [self._bytes_of(record, slot) for record, slot in zip(records, slots, strict=True)]
        finally:
            self._close_read(records)
            self._stored(wanted)

    def allocate(
        self,
        tx_id: str,
        reused: Sequence[bytes],
        new: Sequence[BlockFacts],
        lease_s: float,
        expected: Expected | None = None,
    ) -> Allocation | TransactionRejection:
        """Begin a transaction. `expected` marks new blocks that an advisory announced."""
        with self.lock:
            got = self.transactions.allocate(tx_id, reused, new, max(0.0, lease_s), self.clock(), expected)
            known = got.present if isinstance(got, Allocation) and expected is None else ()
            wanted = self.catalog.expected.wanted(known)
        self.settle()
        self._stored(wanted)
        return got

    def begin_write(self, tx_id: str, keys: Sequence[bytes]) -> list[Filling] | None:
        """Return the destinations of allocated blocks' bytes until `end_write`, None if they must not be written."""
        with self.lock:
            records = self.transactions.begin_write(tx_id, keys)
            if records is None:
                return None
            return [Filling(record, self.arena.claim(record.slots[DRAM], record.facts.length)) for record in records]

    def end_write(self, filling: Sequence[Filling], checksums: Sequence[bytes]) -> None:
        """Record the checksums of written blocks. An empty one marks an incomplete block."""
        with self.lock:
            self.transactions.end_write([item.record for item in filling], checksums)
        self.settle()

    def commit(self, tx_id: str) -> bool:
        """Make a transaction's blocks visible, and queue them for copying to SSD."""
        with self.lock:
            new = self.transactions.new_keys(tx_id)
            committed = self.transactions.commit(tx_id, self.clock())
            self.counts.stored += len(new) if committed else 0
        self.settle()
        self._stored(new if committed else ())
        return committed

    def abort(self, tx_id: str) -> bool:
        """Abort a transaction. Return False if it was already committed."""
        with self.lock:
            aborted = self.transactions.abort(tx_id)
        self.settle()
        return aborted

    def verify(self, key: bytes) -> None:
        """Compare all copies of a block with its checksum, and drop corrupt ones."""
        with self.lock:
            record = self.catalog.open_read([key])[0]
            copies = dict(record.slots) if record else {}
        if record is None:
            return
        try:
            wrong = [medium for medium, slot in copies.items() if not self._is_whole(record.facts, medium, slot)]
            with self.lock:
                for medium in wrong:
                    self._drop_corrupt(record, medium)
        finally:
            self._close_read([record])

    def promote(self, keys: Sequence[bytes], expected: Expected | None = None) -> list[bytes]:
        """Copy those of the blocks that are only on SSD to DRAM. Return the blocks that are then in DRAM."""
        with self.lock:
            if expected is not None:
                # A block in DRAM keeps its expectation.
                keys = [key for key in keys if (known := self.catalog.find(key)) and DRAM not in known.slots]
            records = self.catalog.open_read(keys)
            alone = [item for item in records if item is not None and DRAM not in item.slots]
        try:
            for record in alone:
                self._load(record, expected)
            with self.lock:
                return [record.facts.key for record in alone if DRAM in record.slots]
        finally:
            with self.lock:
                self.catalog.close_read(records)
            self.settle()

    def evict_by(self, name: str) -> None:
        """Evict by another rule of EVICTIONS from here on. Raises ValueError."""
        with self.lock:
            self.catalog.evict_by(name)
            self.eviction = name

    def write_through(self, key: bytes) -> bool:
        """Copy a block from DRAM to SSD. Return False if the disk rejected it."""
        file = self.slot_file
        if file is None:
            return True
        with self.lock:
            record = self.catalog.open_fill(key, SSD)
            dram = record.slots.get(DRAM) if record else None
            if record is not None:
                # A second use, because `close_fill` ends the first one before `_describe` is done with the record.
                self.catalog.begin_use(record)
        if record is None:
            return True
        whole, header, slot = False, self._header(record), record.filling[SSD]
        failed: OSError | None = None
        try:
            if dram is not None:
                view = self.arena.view(dram, record.facts.length)
                # A block that was damaged in DRAM must not get a copy with a valid header.
                whole = checksum_of(view) == record.facts.checksum
                if whole:
                    with self.disk.at_work():
                        file.write(slot, header, view)
        except OSError as error:
            whole, failed = False, error
        with self.lock:
            if dram is not None and not whole and failed is None:
                self._drop_corrupt(record, DRAM)
            self.counts.write_through_failed += failed is not None
            self.catalog.close_fill(record, SSD, whole=whole)
        self._describe(record, header)
        self._close_read([record])
        if self.room is not None and failed is not None:
            self.room.rejected(slot, failed)
        elif self.room is not None and whole:
            self.room.taken(slot)
        return failed is None

    def pin(self, keys: Sequence[bytes], seconds: float) -> int:
        """Pin blocks for `seconds`, or end their pins if it is 0. Return the number of affected blocks."""
        with self.lock:
            now = self.clock()
            pinned = self.catalog.pin(keys, now + seconds, now) if seconds > 0 else self.catalog.unpin(keys)
            records = self.catalog.open_read(keys)
        self._describe_all(records)
        for key in keys if seconds > 0 else ():
            # Pinned blocks leave DRAM only if SSD has them.
            self.on_stored(key)
        return pinned

    def pins(self) -> list[PinnedPrefix]:
        """Return the pinned prefixes, largest first."""
        with self.lock:
            pinned = self.catalog.usage.pinned()
        return pinned_prefixes(pinned)

    def unpin(self, name: bytes, tenant: str) -> int:
        """End a pin by its name. Return the number of its blocks, 0 if there is no such pin."""
        # By tenant too: payloads of several tenants may have one name.
        keys = [key for pin in self.pins() if (pin.name, pin.tenant) == (name, tenant) for key in pin.keys]
        return self.pin(keys, 0.0) if keys else 0

    def learn_routing_keys(self, blocks: Sequence[BlockFacts]) -> None:
        """Assign new routing keys to held blocks whose keys are missing or different."""
        routing_keys = {facts.key: facts.routing_key for facts in blocks if facts.routing_key}
        with self.lock:
            held = [self.catalog.find(key) for key in routing_keys]
            keys = [
                item.facts.key
                for item in held
                if item is not None and item.visible and item.facts.routing_key != routing_keys[item.facts.key]
            ]
            records = self.catalog.open_read(keys)
            for record in records:
                if record is not None:
                    self.catalog.rename(record, routing_keys[record.facts.key])
        self._describe_all(records)

    def shrink(self, keys: Sequence[bytes], unread_s: float, until: float) -> list[BlockFacts]:
        """Drop copies not read for `unread_s` that another node has locked, unless `until` has passed."""
        with self.lock:
            now = self.clock()
            dropped = drop_cold(self.catalog, keys, now - unread_s) if now < until else []
            self.counts.shrunk += len(dropped)
        self.settle()
        return [record.facts for record in dropped]

    def purge(self, tenant: str) -> int:
        """Forget a tenant's blocks and overwrite their bytes after all uses in progress.

        Raises OSError if the disk rejects the write or a use does not end.
        """
        with self.lock:
            count = self.catalog.purge(tenant)
            self.counts.purged += count
            # All at once: the caller of a purge waits for the last byte.
            self.catalog.retry_clearing(self.catalog.unclean)
        self.settle()
        leaving, unclean = True, 0
        for _ in range(_PURGE_CHECKS):
            with self.lock:
                leaving = self.catalog.is_leaving(tenant)
                unclean = self.catalog.unclean
            if not leaving:
                break
            self._pause.wait(_PURGE_CHECK_S)
        if unclean or leaving:
            raise OSError("blocks of the tenant could not be overwritten")
        return count

    def tick(self) -> None:
        """End expired leases, pins, and blocks. Call once a second."""
        with self.lock:
            now = self.clock()
            self.transactions.expire(now)
            self.catalog.expire(now)
            self.catalog.retry_clearing(_RETRIED_PER_TICK)
        if self.room is not None:
            self.room.tick()
        self.settle()
        # Marks where the minute begins that the next reports cover.
        self.disk.share()

    def settle(self) -> None:
        """Publish changes and clear freed slots."""
        with self.lock:
            changes = self.catalog.take_changes()
            if changes:
                # Under the lock, so that events are published in the order of the changes.
                self._on_changes(changes)
            cleared = self.catalog.take_cleared()
        if cleared:
            clean = [self._clear(slot) for slot in cleared]
            with self.lock:
                for slot, well in zip(cleared, clean, strict=True):
                    (self.catalog.slot_cleared if well else self.catalog.slot_not_cleared)(slot)

    def close(self) -> None:
        """Close arena and file. No other call can be in progress."""
        self.arena.close()
        if self.slot_file is not None:
            self.slot_file.close()

    def _clear(self, slot: ClearedSlot) -> bool:
        """Overwrite a slot or mark it as free on disk. Return False if bytes to be overwritten can still be there."""
        if slot.medium == DRAM:
            if slot.scrub:
                self.arena.scrub(slot.slot)
        elif self.slot_file is not None:
            try:
                if slot.scrub:
                    self.slot_file.scrub(slot.slot)
                else:
                    self.slot_file.release(slot.slot, BlockHeader(slot.facts))
            except OSError:
                # A header that stays could restore the block at most; bytes that had to be overwritten are a fault.
                return not slot.scrub
        return True

    def _describe_all(self, records: Sequence[BlockRecord | None]) -> None:
        """Write the changes of blocks in use into the headers of their copies on SSD, and end the use."""
        try:
            for record in records:
                if record is not None:
                    self._describe(record, None)
        finally:
            self._close_read(records)

    def _describe(self, record: BlockRecord, written: BlockHeader | None) -> None:
        """Update the header of the copy on SSD, if any, because a pin's duration outlives this process.

        The record is in use. `written` is the current header. Pins can begin and end during the call.
        """
        # Again until the header is current: a pin may change while it is written.
        while self.slot_file is not None:
            with self.lock:
                slot, header = record.slots.get(SSD), self._header(record)
            if slot is None or header == written:
                return
            # The block itself is whole: a restart loses its new pin at most.
            with contextlib.suppress(OSError):
                self.slot_file.describe(slot, header)
            written = header

    def _stored(self, keys: Sequence[bytes]) -> None:
        for key in keys:
            self.on_stored(key)

    def _close_read(self, records: Sequence[BlockRecord | None]) -> None:
        with self.lock:
            self.catalog.close_read(records)
        self.settle()

    def _fitting(self, keys: Sequence[bytes], max_bytes: int) -> Sequence[bytes]:
        size = 0
        for count, key in enumerate(keys):
            record = self.catalog.find(key)
            size += record.facts.length if record else 0
            # At least one block, however large.
            if size > max_bytes and count:
                return keys[:count]
        return keys

    def _bytes_of(self, record: BlockRecord | None, slot: int | None) -> tuple[BlockFacts, memoryview] | None:
        if record is None:
            return None
        if slot is not None:
            return record.facts, self.arena.view(slot, record.facts.length)
        view = self._load(record)
        with self.lock:
            if view is None:
                self.counts.misses += 1
            else:
                self.counts.hits[SSD] += 1
        return None if view is None else (record.facts, view)

    def _load(self, record: BlockRecord, expected: Expected | None = None) -> memoryview | None:
        """Read a block from SSD into DRAM, or into other memory if no slot becomes free.

        Return None if it is corrupt.
        """
        with self.lock:
            slot = record.slots.get(SSD)
            filled = self.catalog.open_fill(record.facts.key, DRAM, expected) if slot is not None else None
        if slot is None or self.slot_file is None:
            return None
        length = record.facts.length
        view = self.arena.claim(record.filling[DRAM], length) if filled else memoryview(bytearray(length))
        try:
            with self.disk.at_work():
                read = self.slot_file.read_into(slot, view)
            whole = read and checksum_of(view) == record.facts.checksum
        except OSError:
            whole = False
        with self.lock:
            if filled:
                self.catalog.close_fill(record, DRAM, whole=whole)
            if not whole:
                # A block whose bytes disagree with their checksum is never handed out.
                self._drop_corrupt(record, SSD)
        return view if whole else None

    def _is_whole(self, facts: BlockFacts, medium: Medium, slot: int) -> bool:
        if medium == DRAM:
            return checksum_of(self.arena.view(slot, facts.length)) == facts.checksum
        view = memoryview(bytearray(facts.length))
        try:
            read = self.slot_file is not None and self.slot_file.read_into(slot, view)
        except OSError:
            return False
        return read and checksum_of(view) == facts.checksum

    def _drop_corrupt(self, record: BlockRecord, medium: Medium) -> None:
        if medium in record.slots:
            self.counts.corrupt[medium] += 1
            self.counts.repaired += len(record.slots) > 1
            self.catalog.drop_copy(record, medium)

    def _header(self, record: BlockRecord) -> BlockHeader:
        offset = self._epoch_offset_s
        pinned_until = record.pinned_until + offset if record.pinned_until else 0.0
        return BlockHeader(
            record.facts, True, self.incarnation, record.number, record.expires_at + offset, pinned_until
        )
