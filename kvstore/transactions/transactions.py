"""Transactions over a node's blocks (Mooncake §5.3): allocate and lock, then commit or abort. An expired lease aborts.

A transaction locks the blocks it reuses and the new ones, so that two gateways on one node never write the same block,
and no block that a request counts on is evicted before its use. For a transfer, the source locks its blocks with a
transaction without new ones, the destination allocates, and both commit.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Sequence
from typing import Literal

import msgspec

from kvstore.tiers.block_facts import BlockFacts
from kvstore.transactions.block_catalog import BlockCatalog
from kvstore.transactions.block_record import BlockRecord
from kvstore.transactions.expected_blocks import Expected

MAX_LEASE_S = 60.0
MAX_OPEN = 1024
_ENDS_REMEMBERED = 4096

Reason = Literal["no_room", "over_quota", "locked", "missing", "too_large", "too_many", "duplicate", "ephemeral"]
End = Literal["committed", "aborted", "expired"]


class Allocation(msgspec.Struct, frozen=True):
    """Result of a successful transaction."""

    new: tuple[BlockRecord, ...]
    """Blocks to be written before the commit."""
    present: tuple[BlockRecord, ...]
    """Blocks that were requested as new but are already committed. They are locked like the reused ones."""


class TransactionRejection(msgspec.Struct, frozen=True):
    """Why a transaction was rejected. The node is unchanged."""

    reason: Reason
    keys: tuple[bytes, ...] = ()


class _Transaction:
    def __init__(self, locked: list[BlockRecord], lease_end: float) -> None:
        self.locked = locked
        self.lease_end = lease_end
        self.new: dict[bytes, BlockRecord] = {}


class Transactions:
    """Open transactions.

    Mutable state: `_open` (id → transaction), `_leases` (heap of expiries), `_ended` (latest outcomes).
    """

    def __init__(self, catalog: BlockCatalog) -> None:
        self._catalog = catalog
        self._open: dict[str, _Transaction] = {}
        self._leases: list[tuple[float, str]] = []
        self._ended: OrderedDict[str, End] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def ended(self, tx_id: str) -> End | None:
        """Return the outcome of a transaction, None if it is open, unknown, or no longer remembered."""
        return self._ended.get(tx_id)

    def allocate(
        self,
        tx_id: str,
        reused: Sequence[bytes],
        new: Sequence[BlockFacts],
        lease_s: float,
        now: float,
        expected: Expected | None = None,
    ) -> Allocation | TransactionRejection:
        """Lock reused blocks and add new ones atomically. `expected` marks blocks that an advisory announced."""
        self.expire(now)
        rejection = self._why_not(tx_id, reused, new)
        if rejection is not None:
            return rejection
        catalog = self._catalog
        # Another gateway may have stored the same blocks since the lookup.
        present = [record for facts in new if (record := catalog.find(facts.key)) is not None]
        locked = [record for key in reused if (record := catalog.find(key)) is not None] + present
        for record in locked:
            catalog.lock(record)
        transaction = _Transaction(locked, now + min(lease_s, MAX_LEASE_S))
        reason = self._take_in(transaction, [facts for facts in new if catalog.find(facts.key) is None], now, expected)
        if reason is not None:
            # All or nothing: blocks that were added before the one without room leave again.
            self._undo(transaction)
            return TransactionRejection(reason)
        self._open[tx_id] = transaction
        heapq.heappush(self._leases, (transaction.lease_end, tx_id))
        # Entries of ended transactions are dropped in bulk.
        if len(self._leases) > 4 * MAX_OPEN:
            self._leases = [(opened.lease_end, open_id) for open_id, opened in self._open.items()]
            heapq.heapify(self._leases)
        return Allocation(tuple(transaction.new.values()), tuple(present))

    def begin_write(self, tx_id: str, keys: Sequence[bytes]) -> list[BlockRecord] | None:
        """Return the new blocks to fill, in use until `end_write`. None if one does not belong to this transaction."""
        transaction = self._open.get(tx_id)
        if transaction is None or len(set(keys)) != len(keys) or not transaction.new.keys() >= set(keys):
            return None
        records = [transaction.new[key] for key in keys]
        # Written already, being written, or purged.
        if any(record.facts.checksum or record.users or not record.held for record in records):
            return None
        for record in records:
            self._catalog.begin_use(record)
        return records

    def end_write(self, records: Sequence[BlockRecord], checksums: Sequence[bytes]) -> None:
        """Record the checksums of written blocks. An empty one means that the bytes did not arrive."""
        for record, checksum in zip(records, checksums, strict=True):
            if checksum:
                self._catalog.describe(record, msgspec.structs.replace(record.facts, checksum=checksum))
        self._catalog.close_read(records)

    def new_keys(self, tx_id: str) -> list[bytes]:
        """Return the new blocks of an open transaction, empty for any other."""
        transaction = self._open.get(tx_id)
        return list(transaction.new) if transaction else []

    def commit(self, tx_id: str, now: float) -> bool:
        """Make the new blocks visible and release the locks.

        Return False if one is not written or the lease has expired.

        Committing twice is harmless.
        """
        self.expire(now)
        transaction = self._open.get(tx_id)
        if transaction is None:
            # A repeated commit, after an answer that was lost, has the first one's result.
            return self._ended.get(tx_id) == "committed"
        if any(not record.facts.checksum for record in transaction.new.values()):
            return False
        for record in transaction.new.values():
            self._catalog.publish(record)
        self._finish(tx_id, "committed")
        # The last block of a prompt becomes the least recent one.
        for record in reversed([*transaction.locked, *transaction.new.values()]):
            self._catalog.unlock(record)
        return True

    def abort(self, tx_id: str) -> bool:
        """Drop the new blocks and release the locks. Return False if the transaction was committed."""
        if tx_id in self._open:
            self._undo(self._finish(tx_id, "aborted"))
        return self._ended.get(tx_id) != "committed"

    def expire(self, now: float) -> int:
        """Abort transactions with an expired lease. Return their number."""
        count = 0
        while self._leases and self._leases[0][0] <= now:
            _, tx_id = heapq.heappop(self._leases)
            if tx_id in self._open:
                self._undo(self._finish(tx_id, "expired"))
                count += 1
        return count

    def check(self) -> None:
        """Raise AssertionError unless every lock belongs to a transaction and every uncommitted block has one."""
        locks: dict[BlockRecord, int] = {}
        for transaction in self._open.values():
            for record in [*transaction.locked, *transaction.new.values()]:
                locks[record] = locks.get(record, 0) + 1
            if any(record.visible for record in transaction.new.values()):
                raise AssertionError("a block is visible before its transaction commits")
        for record in self._catalog.page(-1, len(self._catalog)):
            if record.locks != locks.pop(record, 0):
                raise AssertionError("a committed block's locks are not those of its transactions")
        if any(record.held and record.locks != count for record, count in locks.items()):
            raise AssertionError("an uncommitted block is not locked by its transaction alone")

    def _why_not(self, tx_id: str, reused: Sequence[bytes], new: Sequence[BlockFacts]) -> TransactionRejection | None:
        catalog = self._catalog
        keys = [*reused, *(facts.key for facts in new)]
        # An id that has ended counts too: a repeated message must not begin a second transaction.
        if tx_id in self._open or tx_id in self._ended or len(set(keys)) != len(keys):
            return TransactionRejection("duplicate")
        if len(self._open) >= MAX_OPEN:
            return TransactionRejection("too_many")
        large = tuple(facts.key for facts in new if facts.length > catalog.settings.slot_bytes)
        if large:
            return TransactionRejection("too_large", large)
        held = {key: record for key in keys if (record := catalog.find(key)) is not None}
        locked = tuple(key for key, record in held.items() if not record.visible)
        if locked:
            return TransactionRejection("locked", locked)
        missing = tuple(key for key in reused if key not in held)
        if missing:
            return TransactionRejection("missing", missing)
        return None

    def _take_in(
        self, transaction: _Transaction, new: list[BlockFacts], now: float, expected: Expected | None
    ) -> Reason | None:
        if not self._catalog.can_take(len(new)):
            return "no_room"
        for facts in new:
            # A block that may never be requested evicts nothing.
            has_room = self._catalog.make_room_for if expected is None else self._catalog.usage.fits
            if not has_room(facts.tenant, facts.length):
                return "over_quota"
            # The checksum marks a block as written, so that an announced one must not count yet.
            record = self._catalog.create(msgspec.structs.replace(facts, checksum=b""), now, expected)
            if record is None:
                return "no_room"
            transaction.new[facts.key] = record
        return None

    def _finish(self, tx_id: str, end: End) -> _Transaction:
        self._ended[tx_id] = end
        if len(self._ended) > _ENDS_REMEMBERED:
            self._ended.popitem(last=False)
        return self._open.pop(tx_id)

    def _undo(self, transaction: _Transaction) -> None:
        for record in transaction.new.values():
            self._catalog.unlock(record)
            self._catalog.forget(record)
        for record in reversed(transaction.locked):
            self._catalog.unlock(record)
