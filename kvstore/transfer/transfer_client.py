"""Reads and writes blocks on nodes: in batches, checked, from another connection or holder where one fails."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import msgspec

from kvstore.keys.keyring import Keyring
from kvstore.tiers.block_facts import BlockFacts
from kvstore.transfer.connection import Connection, PeerError
from kvstore.transfer.connection_pool import ConnectionPool
from kvstore.transfer.flow_control import FlowControl, FlowPriority
from kvstore.transfer.frames import (
    MAX_KEYS,
    MAX_NAME_CHARACTERS,
    Blocks,
    CacheHint,
    Done,
    Get,
    Message,
    Put,
    Reply,
    Suspect,
    TransferRejected,
)
from kvstore.transfer.link_rate import LinkRate
from kvstore.transfer.quarantine import Quarantine
from kvstore.transfer.tls import TlsFiles

_MAX_LINKS = 1024


class Wanted(msgspec.Struct, frozen=True, gc=False):
    """A block to be read, and its destination: a buffer at least as long, or a new one."""

    key: bytes
    into: memoryview | None = None


class Fetched(msgspec.Struct, frozen=True, gc=False):
    """The bytes of a block, which agree with its checksum."""

    payload: memoryview
    checksum: bytes


class TransferSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one client."""

    timeout_s: float = 10.0
    """Longest silence of a peer."""
    window_bytes: int = 32 << 20
    """Bytes under way at a time."""
    piece_bytes: int = 8 << 20
    """Size of the pieces of a batch, between which a more urgent transfer may run."""


class TransferClient:
    """For any number of threads. Mutable state: the pool, `links` and `_quarantine`, guarded by `_lock`."""

    def __init__(
        self,
        keyring: Keyring | None,
        clock: Callable[[], float],
        tls: TlsFiles | None = None,
        settings: TransferSettings | None = None,
        name: str = "",
    ) -> None:
        """`keyring` None: no node is reached. `name` identifies this client to nodes, 64 characters at most."""
        self._settings = settings or TransferSettings()
        self._clock = clock
        self._pool = ConnectionPool(keyring, clock, tls, self._settings.timeout_s, name[:MAX_NAME_CHARACTERS])
        self._flow = FlowControl(self._settings.window_bytes)
        self._quarantine = Quarantine()
        self._lock = threading.Lock()
        self.links: dict[str, LinkRate] = {}
        """Address of a node → cost of transfers from it."""
        self.corrupt = 0
        """Blocks that arrived with another checksum."""

    def call(self, address: str, message: Message, payload: Sequence[memoryview] = ()) -> Reply:
        """Send one message and return the answer, over a new connection where a kept one was closed.

        Raises PeerError; the message may then have been executed or not. A rejection as "locked" or "duplicate" may be
        due to the same message on the connection that broke.
        """
        while True:
            connection, kept = self._take(address)
            try:
                connection.send(message, payload)
                answer, _ = connection.receive()
            except PeerError:
                connection.close()
                # The node may have closed an idle connection: a new one decides whether it is gone.
                if kept:
                    continue
                self._failed(address)
                raise
            except BaseException:
                # A message over the limits, for example: the request has no answer to wait for.
                connection.close()
                raise
            self._pool.give(address, connection)
            self._succeeded(address)
            return answer  # type: ignore[return-value]

    def get(
        self, holders: Sequence[str], wanted: Sequence[Wanted], priority: FlowPriority = FlowPriority.REQUEST
    ) -> list[Fetched | None]:
        """Return the blocks in order, None where no holder has one whole; its buffer then has undefined contents.

        Holders whose link costs least come first; the others are asked for what is missing.
        """
        fetched: list[Fetched | None] = [None] * len(wanted)
        size = sum(len(item.into) if item.into is not None else 0 for item in wanted)
        with self._lock:
            usable = [item for item in holders if self._quarantine.usable(item, self._clock())]
            # An unknown link comes first, or its cost would never be learned.
            usable.sort(key=lambda item: self.links[item].cost_s(size) if item in self.links else 0.0)
        for holder in usable:
            missing = [index for index, block in enumerate(fetched) if block is None]
            # A corrupt block may be repaired from the holder's other tier, a broken connection by a new one.
            for _ in range(2):
                if not missing or not self._get_from(holder, wanted, fetched, missing, priority):
                    break
                missing = [index for index in missing if fetched[index] is None]
        return fetched

    def put(
        self,
        address: str,
        blocks: Sequence[tuple[BlockFacts, memoryview]],
        hint: CacheHint = "default",
        pin_s: float = 0.0,
        priority: FlowPriority = FlowPriority.REQUEST,
    ) -> Done | TransferRejected:
        """Store blocks, whose facts carry checksums, all or none; raises PeerError. Repeating it is harmless."""
        size = sum(facts.length for facts, _ in blocks)
        message = Put([facts for facts, _ in blocks], hint, pin_s)
        with self._flow.moving(priority, size, self._settings.timeout_s):
            answer = self.call(address, message, [payload for _, payload in blocks])
        if not isinstance(answer, Done | TransferRejected):
            raise PeerError("the node answers a put with something else")
        return answer

    def close_idle(self) -> None:
        """Close connections that have been idle for a while; once a second is enough."""
        self._pool.close_idle()

    def close(self) -> None:
        """Close all idle connections."""
        self._pool.close()

    def _get_from(
        self,
        holder: str,
        wanted: Sequence[Wanted],
        fetched: list[Fetched | None],
        missing: list[int],
        priority: FlowPriority,
    ) -> bool:
        """Ask one holder for the missing blocks; returns whether asking again may bring more."""
        again, kept = False, True
        while missing:
            try:
                connection, kept = self._take(holder)
                try:
                    answered, corrupt = self._piece(connection, holder, wanted, fetched, missing, priority)
                except (PeerError, TimeoutError):
                    connection.close()
                    raise
                self._pool.give(holder, connection)
            except (PeerError, TimeoutError):
                # Only a new connection that fails counts against the node.
                if not kept:
                    self._failed(holder)
                return True
            self._succeeded(holder)
            again = again or corrupt
            missing = missing[answered:]
        return again

    def _piece(
        self,
        connection: Connection,
        holder: str,
        wanted: Sequence[Wanted],
        fetched: list[Fetched | None],
        missing: list[int],
        priority: FlowPriority,
    ) -> tuple[int, bool]:
        """Receive the first missing blocks; returns how many were answered, and whether one was corrupt."""
        asked = missing[:MAX_KEYS]
        limit = self._settings.piece_bytes
        # A block without a buffer has an unknown size, and counts as a whole piece.
        size = min(limit, sum(len(into) if (into := wanted[index].into) is not None else limit for index in asked))
        suspects = []
        with self._flow.moving(priority, size, self._settings.timeout_s):
            began = self._clock()
            connection.send(Get([wanted[index].key for index in asked], limit, int(priority), self._learned(holder)))
            answer, received = connection.receive()
            if not isinstance(answer, Blocks) or not 0 < len(answer.lengths) <= len(asked):
                raise PeerError("the node answers a get with something else")
            for index, length, checksum in zip(asked, answer.lengths, answer.checksums, strict=False):
                if length <= 0:
                    continue
                into = wanted[index].into
                if into is not None and len(into) < length:
                    connection.discard(length)
                    continue
                view = memoryview(bytearray(length)) if into is None else into[:length]
                if connection.receive_payload(view) == checksum:
                    fetched[index] = Fetched(view, checksum)
                else:
                    suspects.append(wanted[index].key)
            seconds = self._clock() - began
        with self._lock:
            if holder not in self.links and len(self.links) >= _MAX_LINKS:
                self.links.pop(next(iter(self.links)))
            self.links.setdefault(holder, LinkRate()).observe(received, seconds)
            self.corrupt += len(suspects)
        # After the piece, when the connection has no bytes of it left.
        for key in suspects:
            connection.send(Suspect(key))
            connection.receive()
        return len(answer.lengths), bool(suspects)

    def _learned(self, holder: str) -> float:
        """Return the rate of the link to a holder; 0 before its first large transfer."""
        with self._lock:
            link = self.links.get(holder)
            return link.bytes_per_s if link is not None and link.large_transfers else 0.0

    def _take(self, address: str) -> tuple[Connection, bool]:
        try:
            return self._pool.take(address)
        except PeerError:
            self._failed(address)
            raise

    def _failed(self, address: str) -> None:
        with self._lock:
            self._quarantine.failed(address, self._clock())

    def _succeeded(self, address: str) -> None:
        with self._lock:
            self._quarantine.succeeded(address)
