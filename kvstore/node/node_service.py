"""Answer the messages of a node's clients."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from kvstore.node.block_store import BlockStore, Filling
from kvstore.node.pull_pace import PullPace
from kvstore.tiers.block_facts import BlockFacts
from kvstore.transactions.expected_blocks import Expected
from kvstore.transactions.transactions import MAX_LEASE_S, TransactionRejection
from kvstore.transfer.connection import PeerError
from kvstore.transfer.flow_control import FlowPriority
from kvstore.transfer.frames import (
    MAX_PAYLOAD_BYTES,
    Abort,
    Allocate,
    Commit,
    ContentsPage,
    Describe,
    Done,
    Get,
    Held,
    Lookup,
    Message,
    PageOf,
    Pin,
    Pull,
    Purge,
    Put,
    Reply,
    Shrink,
    Suspect,
    TransferRejected,
    Write,
)
from kvstore.transfer.transfer_client import Fetched, TransferClient, Wanted
from kvstore.transfer.transfer_server import ReadBlock

_MAX_PAGE = 4096


class _Incoming:
    """Blocks of a transaction whose bytes are being received."""

    def __init__(self, store: BlockStore, filling: list[Filling], expected: list[bytes]) -> None:
        self._store, self._filling, self._expected = store, filling, expected
        self.views: list[tuple[int, memoryview | None]] = [(len(item.view), item.view) for item in filling]
        self.end: Callable[[bool], Reply] = lambda whole: Done(len(filling)) if whole else TransferRejected("checksum")

    def finish(self, checksums: Sequence[bytes]) -> Reply:
        """Keep the blocks whose checksums match the announced ones."""
        # An empty checksum keeps a block from being committed.
        right = [came if came == wanted else b"" for came, wanted in zip(checksums, self._expected, strict=True)]
        self._store.end_write(self._filling, right)
        return self.end(all(right))


class NodeService:
    """The node manager's side of the protocol. Its only state is the number of its own transactions."""

    def __init__(
        self,
        store: BlockStore,
        client: TransferClient,
        events_published: Callable[[], int],
        pace: PullPace | None = None,
    ) -> None:
        """Serve `store`. `pace` limits pulls that no request waits for, None for no limit."""
        self._store, self._client, self._events_published = store, client, events_published
        self._pace = pace
        self._numbers = itertools.count()

    def reading(self, message: Get) -> AbstractContextManager[list[ReadBlock | None]]:
        """Yield blocks to send."""
        keys, limit = message.keys, min(message.max_bytes, MAX_PAYLOAD_BYTES)
        if message.length:
            # Only parts are sent, so that the blocks themselves may exceed the limit.
            keys, limit = keys[: max(1, limit // message.length)], sys.maxsize
        return self._store.reading(keys, limit, counted=not message.offset)

    def begin_put(self, message: Put) -> _Incoming | TransferRejected:
        """Allocate for a put. An ephemeral prompt is not kept below engine memory (Mooncake §5.2)."""
        if message.hint == "ephemeral" or any(not facts.checksum for facts in message.blocks):
            return self._rejected("ephemeral" if message.hint == "ephemeral" else "checksum")
        begun = self._begin(message.blocks)
        if isinstance(begun, TransferRejected):
            return begun
        tx_id, filling = begun
        new = {item.record.facts.key: item for item in filling}
        keys = [facts.key for facts in message.blocks]

        def end(whole: bool) -> Reply:
            if not whole:
                self._store.abort(tx_id)
                return self._rejected("checksum")
            if not self._store.commit(tx_id):
                return self._rejected("not_open")
            if message.hint == "context_cache":
                self._store.pin(keys, message.pin_s)
            # The gateway's keys may be new for blocks that were stored without them.
            self._store.learn_routing_keys([facts for facts in message.blocks if facts.key not in new])
            return Done(len(new), [key for key in keys if key not in new])

        incoming = _Incoming(self._store, filling, [facts.checksum for facts in message.blocks if facts.key in new])
        incoming.views = [(facts.length, new[facts.key].view if facts.key in new else None) for facts in message.blocks]
        incoming.end = end
        return incoming

    def begin_write(self, message: Write, payload_bytes: int) -> _Incoming | TransferRejected:
        """Prepare to fill a transaction's blocks."""
        filling = self._store.begin_write(message.tx_id, message.keys)
        if filling is None:
            return self._rejected("missing")
        if sum(len(item.view) for item in filling) != payload_bytes:
            self._store.end_write(filling, [b""] * len(filling))
            return self._rejected("length")
        return _Incoming(self._store, filling, message.checksums)

    def answer(self, message: Message) -> Reply:
        """Execute a message without payload."""
        match message:
            case Lookup():
                reply: Reply = self._lookup(message.keys)
            case Allocate():
                reply = self._allocate(message)
            case Commit():
                reply = Done() if self._store.commit(message.tx_id) else self._rejected("not_open")
            case Abort():
                reply = Done() if self._store.abort(message.tx_id) else self._rejected("committed")
            case Pin():
                reply = Done(self._store.pin(message.keys, message.seconds))
            case Purge():
                reply = self._purge(message.tenant)
            case Suspect():
                self._store.verify(message.key)
                reply = Done()
            case Pull() | Shrink():
                reply = self._pull(message) if isinstance(message, Pull) else self._shrink(message)
            case ContentsPage() | Describe():
                reply = self._listed(message)
            case _:
                reply = self._rejected("unknown")
        return reply

    def _lookup(self, keys: list[bytes]) -> Held:
        with self._store.lock:
            records = [self._store.catalog.find(key) for key in keys]
            there = [item if item is not None and item.visible else None for item in records]
            return Held([(item.facts.length, sorted(item.slots)) if item else (-1, []) for item in there])

    def _listed(self, message: ContentsPage | Describe) -> PageOf:
        catalog, after = self._store.catalog, message.after if isinstance(message, ContentsPage) else 0
        with self._store.lock:
            if isinstance(message, ContentsPage):
                records = catalog.page(after, max(1, min(message.limit, _MAX_PAGE)))
            else:
                records = catalog.called(message.routing_keys, _MAX_PAGE)
            blocks = [(record.facts, sorted(record.slots)) for record in records]
            # Under the lock, so that the page and the number of its events agree.
            events = self._events_published()
        return PageOf(blocks, records[-1].number if records else after, events)

    def _purge(self, tenant: str) -> Reply:
        try:
            return Done(self._store.purge(tenant))
        except OSError:
            return self._rejected("disk")

    def _allocate(self, message: Allocate) -> Reply:
        got = self._store.allocate(message.tx_id, message.reused, message.new, message.lease_s)
        if isinstance(got, TransactionRejection):
            return self._rejected(got.reason, list(got.keys))
        return Done(len(got.new), [record.facts.key for record in got.present])

    def _pull(self, message: Pull) -> Reply:
        """Fetch blocks under a transaction here, which makes room, and one at their holder, which keeps them there."""
        keys = [facts.key for facts in message.blocks]
        now = self._store.clock()
        expected = Expected(now + message.expected_s, now + message.keep_s) if message.keep_s > 0 else None
        # What is on this node's SSD needs no transfer.
        promoted = set(self._store.promote(keys, expected))
        if not message.holder:
            return Done(len(promoted), [key for key in keys if key not in promoted])
        begun = self._begin(message.blocks, expected)
        if isinstance(begun, TransferRejected):
            return begun
        tx_id, filling = begun
        fetched = self._fetch(tx_id, message, filling)
        right = [
            block.checksum if block and len(block.payload) == len(fill.view) else b""
            for block, fill in zip(fetched, filling, strict=True)
        ]
        self._store.end_write(filling, right)
        if all(right) and self._store.commit(tx_id):
            with self._store.lock:
                self._store.counts.pulled += len(filling)
            new = {item.record.facts.key for item in filling}
            return Done(len(new), [facts.key for facts in message.blocks if facts.key not in new])
        self._store.abort(tx_id)
        missing = [fill.record.facts.key for fill, came in zip(filling, right, strict=True) if not came]
        return self._rejected("holder", missing)

    def _fetch(self, tx_id: str, message: Pull, filling: list[Filling]) -> Sequence[Fetched | None]:
        keys = [item.record.facts.key for item in filling]
        wanted = [Wanted(key, fill.view) for key, fill in zip(keys, filling, strict=True)]
        try:
            locked = self._client.call(message.holder, Allocate(tx_id, keys, [], MAX_LEASE_S))
            if not isinstance(locked, Done):
                return [None] * len(wanted)
            # The number comes from the wire, and any other would raise.
            priority = FlowPriority(max(FlowPriority.REQUEST, min(message.priority, FlowPriority.REPLICATION)))
            fetched = self._client.get([message.holder], wanted, priority).blocks
            if self._pace is not None and priority != FlowPriority.REQUEST:
                # Only pulls that no request waits for are slowed down.
                self._pace.came(sum(len(item.payload) for item in fetched if item is not None))
            # Nothing is new there: the commit only ends the locks.
            self._client.call(message.holder, Commit(tx_id))
        except PeerError:
            return [None] * len(wanted)
        return fetched

    def _shrink(self, message: Shrink) -> Reply:
        """Drop copies while a transaction locks the holder's verified copies.

        If two nodes are to drop the same blocks in favor of each other, both find their own copies locked and keep
        them.
        """
        store, keys = self._store, message.keys
        # Half of the lease: the holder's lock certainly lasts until then.
        tx_id, until = f"shrink-{store.incarnation:x}-{next(self._numbers)}", store.clock() + MAX_LEASE_S / 2
        try:
            for key in keys:
                # The holder verifies its copies first: a corrupt one must not become the last.
                self._client.call(message.holder, Suspect(key))
            locked = self._client.call(message.holder, Allocate(tx_id, keys, [], MAX_LEASE_S))
        except PeerError:
            return self._rejected("holder")
        if not isinstance(locked, Done):
            return self._rejected("holder", locked.keys if isinstance(locked, TransferRejected) else [])
        dropped = {facts.key for facts in store.shrink(keys, message.unread_s, until)}
        # If this is lost, the holder's locks end with their lease.
        with contextlib.suppress(PeerError):
            self._client.call(message.holder, Commit(tx_id))
        return Done(len(dropped), [key for key in keys if key not in dropped])

    def _begin(
        self, blocks: Sequence[BlockFacts], expected: Expected | None = None
    ) -> tuple[str, list[Filling]] | TransferRejected:
        """Allocate blocks and begin to write them in a transaction of this node."""
        tx_id = f"node-{self._store.incarnation:x}-{next(self._numbers)}"
        got = self._store.allocate(tx_id, [], blocks, MAX_LEASE_S, expected)
        if isinstance(got, TransactionRejection):
            return self._rejected(got.reason, list(got.keys))
        filling = self._store.begin_write(tx_id, [record.facts.key for record in got.new])
        if filling is None:
            # The tenant was purged in the meantime.
            self._store.abort(tx_id)
            return self._rejected("missing")
        return tx_id, filling

    def _rejected(self, reason: str, keys: list[bytes] | None = None) -> TransferRejected:
        with self._store.lock:
            rejected = self._store.counts.rejected
            rejected[reason] = rejected.get(reason, 0) + 1
        return TransferRejected(reason, keys or [])
