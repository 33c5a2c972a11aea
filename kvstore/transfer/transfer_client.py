"""Read and write blocks on nodes in batches with checksums. The only failover to another connection or holder."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec
import xxhash

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
from kvstore.transfer.quarantine import Quarantine
from kvstore.transfer.tls import TlsFiles

_SHARE = 0.1
"""Weight of the latest transfer."""
_SMALL_BYTES, _LARGE_BYTES = 16 << 10, 256 << 10


class LinkRate:
    """Cost of one link. Mutable: small transfers update the latency, large ones the rate, all others are ignored."""

    def __init__(self, latency_s: float = 0.001, bytes_per_s: float = 1e9) -> None:
        self.latency_s, self.bytes_per_s = latency_s, bytes_per_s
        self.transfers = 0
        self.transferred_bytes = 0
        self.large_transfers = 0

    def observe(self, size: int, seconds: float) -> None:
        """Learn from one transfer."""
        self.transfers += 1
        self.transferred_bytes += size
        if size <= _SMALL_BYTES:
            self.latency_s += _SHARE * (max(0.0, seconds) - self.latency_s)
        elif size >= _LARGE_BYTES:
            # A latency above the transfer's own time must not make the rate infinite or negative.
            rate = size / max(seconds - self.latency_s, seconds / 10, 1e-6)
            # The first measurement is better than the prior.
            self.bytes_per_s += (_SHARE if self.large_transfers else 1.0) * (rate - self.bytes_per_s)
            self.large_transfers += 1


_MAX_LINKS = 1024
_TRIES = 2
"""A corrupt block may be repaired from the holder's other tier."""

Answered = TypeVar("Answered")
Verdict = Literal["missing", "corrupt", "down"]
"""Why a holder did not send a block: it has none, its copy does not match the checksum, or it does not answer."""


class Wanted(msgspec.Struct, frozen=True, gc=False):
    """A block to read, and its destination: a buffer of at least its length, or a new one."""

    key: bytes
    into: memoryview | None = None


class Fetched(msgspec.Struct, frozen=True, gc=False):
    """The bytes of a block, verified against its checksum."""

    payload: memoryview
    checksum: bytes
    holder: str = ""
    """Address of the node that sent it."""


class Received(NamedTuple):
    """Result of a get."""

    blocks: Sequence[Fetched | None]
    """In the order of the request, None if no holder has an intact block; its buffer then has undefined contents."""
    verdicts: Mapping[str, Verdict]
    """Holders in the order of the queries, without those that sent all the blocks that were still missing."""

    @property
    def holder(self) -> str:
        """Address of the node that sent the first block, empty if none did."""
        first = self.blocks[0] if self.blocks else None
        return first.holder if first is not None else ""

    @property
    def reason(self) -> str:
        """Why blocks are missing: "failed" if the first holder without them is down, else "missing". Else empty."""
        if all(block is not None for block in self.blocks):
            return ""
        # The first holder is the one that the gateway counted on, so its verdict is reported.
        return "failed" if next(iter(self.verdicts.values()), "missing") == "down" else "missing"


class _Part(NamedTuple):
    """Bytes of each block, of which others arrived before."""

    offset: int
    length: int
    last: bool
    before: Sequence[Any]
    """Digests of the blocks up to this part."""
    after: list[Any]
    """Digests up to and including this part, once it has arrived."""


class TransferSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one client."""

    timeout_s: float = 10.0
    """Maximum silence of a peer."""
    window_bytes: int = 32 << 20
    """Maximum bytes in transfer at a time."""
    piece_bytes: int = 8 << 20
    """Size of the pieces of a batch. A more urgent transfer can run between two pieces."""


class TransferClient:
    """Client of nodes, for any number of threads.

    Mutable state: the pool, `links`, and `_quarantine`, guarded by `_lock`.
    """

    def __init__(
        self,
        keyring: Keyring | None,
        clock: Callable[[], float],
        tls: TlsFiles | None = None,
        settings: TransferSettings | None = None,
        name: str = "",
    ) -> None:
        """Set up the client.

        Without `keyring`, no node can be reached. `name` (up to 64 characters) identifies it to nodes.
        """
        self._settings = settings or TransferSettings()
        self._clock = clock
        self._pool = ConnectionPool(keyring, clock, tls, self._settings.timeout_s, name[:MAX_NAME_CHARACTERS])
        self._flow = FlowControl(self._settings.window_bytes)
        self._quarantine = Quarantine()
        self._lock = threading.Lock()
        self.links: dict[str, LinkRate] = {}
        """Address of a node → cost of transfers from it."""
        self.corrupt = 0
        """Number of blocks that arrived with a wrong checksum."""

    def call(self, address: str, message: Message, payload: Sequence[memoryview] = ()) -> Reply:
        """Send one message and return the response, over a new connection if a pooled one was closed.

        Raises PeerError; it is then unknown whether the message was executed. A rejection as "locked" or "duplicate"
        can be caused by the same message on the broken connection.
        """

        def exchange(connection: Connection) -> Message:
            connection.send(message, payload)
            return connection.receive()[0]

        return self._over(address, exchange)  # type: ignore[return-value]

    def get(
        self, holders: Sequence[str], wanted: Sequence[Wanted], priority: FlowPriority = FlowPriority.REQUEST
    ) -> Received:
        """Return the blocks. Query the holders in the given order, the later ones only for missing blocks."""
        fetched: list[Fetched | None] = [None] * len(wanted)
        verdicts: dict[str, Verdict] = {}
        for holder in holders:
            with self._lock:
                usable = self._quarantine.usable(holder, self._clock())
            verdict: Verdict = "down"
            for _ in range(_TRIES if usable else 0):
                missing = [index for index, block in enumerate(fetched) if block is None]
                verdict = self._get_from(holder, wanted, fetched, missing, priority)
                if verdict != "corrupt":
                    break
            if all(block is not None for block in fetched):
                break
            verdicts[holder] = verdict
        return Received(fetched, verdicts)

    def stream(
        self, holder: str, wanted: Sequence[Wanted], ends: Sequence[int], arrived: Callable[[int], None]
    ) -> Received:
        """Return blocks of one size from one holder, read in parts into their buffers.

        Part i has the bytes of all blocks up to `ends[i]`. `arrived(i)` is called once they are in the buffers, and
        before they can be verified. Without all blocks, the stream ends and returns none.
        """
        came: list[Fetched | None] = [None] * len(wanted)
        with self._lock:
            usable = self._quarantine.usable(holder, self._clock())
        digests = [xxhash.xxh3_128() for _ in wanted]
        for number, (begin, end) in enumerate(pairwise((0, *ends))):
            part = _Part(begin, end - begin, end == ends[-1], digests, [*digests])
            views = [Wanted(item.key, item.into and item.into[begin:end]) for item in wanted]
            came = [None] * len(wanted)
            indices, priority = [*range(len(wanted))], FlowPriority.REQUEST
            verdict = self._get_from(holder, views, came, indices, priority, part) if usable else "down"
            if None in came and verdict != "corrupt":
                return Received([None] * len(wanted), {holder: verdict})
            arrived(number)
            digests = part.after
        whole = [
            block and Fetched(item.into or block.payload, block.checksum, holder)
            for item, block in zip(wanted, came, strict=True)
        ]
        return Received(whole, {holder: "corrupt"} if None in came else {})

    def put(
        self,
        address: str,
        blocks: Sequence[tuple[BlockFacts, memoryview]],
        hint: CacheHint = "default",
        pin_s: float = 0.0,
        priority: FlowPriority = FlowPriority.REQUEST,
    ) -> Done | TransferRejected:
        """Store blocks, whose facts include checksums, all or none. Raises PeerError. Repeating it is harmless."""
        size = sum(facts.length for facts, _ in blocks)
        message = Put([facts for facts, _ in blocks], hint, pin_s)
        with self._flow.moving(priority, size, self._settings.timeout_s):
            answer = self.call(address, message, [payload for _, payload in blocks])
        if not isinstance(answer, Done | TransferRejected):
            raise PeerError("the node sent an unexpected response to a put")
        return answer

    def close_idle(self) -> None:
        """Close connections that have been idle for a while. Call once a second."""
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
        part: _Part | None = None,
    ) -> Verdict:
        """Request the missing blocks from one holder. Return why it did not send the ones that are still missing."""
        verdict: Verdict = "missing"
        while missing:
            piece = partial(self._piece, holder, wanted, fetched, missing, priority, part)
            try:
                answered, corrupt = self._over(holder, piece)
            except (PeerError, TimeoutError):
                return "down"
            verdict = "corrupt" if corrupt else verdict
            missing = missing[answered:]
        return verdict

    def _piece(
        self,
        holder: str,
        wanted: Sequence[Wanted],
        fetched: list[Fetched | None],
        missing: list[int],
        priority: FlowPriority,
        part: _Part | None,
        connection: Connection,
    ) -> tuple[int, bool]:
        """Receive the first missing blocks. Return the number of answered blocks, and whether one was corrupt."""
        asked = missing[:MAX_KEYS]
        limit = self._settings.piece_bytes
        # A block without a buffer has an unknown size, and counts as a whole piece.
        size = min(limit, sum(len(into) if (into := wanted[index].into) is not None else limit for index in asked))
        suspects = []
        with self._flow.moving(priority, size, self._settings.timeout_s):
            began = self._clock()
            keys = [wanted[index].key for index in asked]
            connection.send(Get(keys, limit, int(priority), self._learned(holder), *(part[:2] if part else ())))
            answer, received = connection.receive()
            if not isinstance(answer, Blocks) or not 0 < len(answer.lengths) <= len(asked):
                raise PeerError("the node sent an unexpected response to a get")
            for index, length, checksum in zip(asked, answer.lengths, answer.checksums, strict=False):
                if length <= 0:
                    continue
                into = wanted[index].into
                if into is not None and len(into) < length:
                    connection.discard(length)
                    continue
                view = memoryview(bytearray(length)) if into is None else into[:length]
                # A piece that is requested again overwrites the buffer.
                fetched[index] = None
                # A copy, as an exchange over a closed connection is repeated.
                digest = part.before[index].copy() if part else xxhash.xxh3_128()
                whole = connection.receive_payload(view, digest)
                if part:
                    part.after[index] = digest
                if whole == checksum or (part and not part.last):
                    fetched[index] = Fetched(view, checksum, holder)
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
        """Return the measured rate of the link to a holder, 0 before its first large transfer."""
        with self._lock:
            link = self.links.get(holder)
            return link.bytes_per_s if link is not None and link.large_transfers else 0.0

    def _over(self, address: str, exchange: Callable[[Connection], Answered]) -> Answered:
        """Run an exchange over a connection to a node, and again over a new one if a pooled one was closed.

        Raises PeerError if a new connection fails.
        """
        while True:
            kept, connection = False, None
            try:
                connection, kept = self._pool.take(address)
                result = exchange(connection)
            except BaseException as error:
                # After a message over the limits, for example, there is no answer to wait for.
                if connection is not None:
                    connection.close()
                if isinstance(error, PeerError):
                    # The node may have closed an idle connection: a new one decides whether it is gone.
                    if kept:
                        continue
                    with self._lock:
                        self._quarantine.failed(address, self._clock())
                raise
            self._pool.give(address, connection)
            with self._lock:
                self._quarantine.succeeded(address)
            return result
