"""Loads a prompt's leading blocks from nodes before its prefill, as long as that is faster than computing them.

Payloads and links are scaled alike. An engine's model has small `kv_bytes_per_token`, and its link carries
proportionally fewer bytes per second, so that a transfer takes as long as a real one. The machine's own transport is
faster than the scaled link: its real seconds count as part of the transfer, and the loader waits for the remaining
time. The engine's own node represents its host's memory, to which the link's limit does not apply.
"""

from __future__ import annotations

import time
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from threading import Event, Lock

import msgspec

from kvstore.connector.engine_params import KvOutcome
from kvstore.transfer.flow_control import FlowPriority
from kvstore.transfer.transfer_client import Fetched, TransferClient, Wanted
from simulator.engine_server.node_store.payloads import Payloads, chain_hashes


class ScaledLink:
    """Runs transfers from each holder one after another. Mutable state: `_free_at`, when each holder's link is free."""

    def __init__(self, bytes_per_s: float, latency_s: float = 0.0) -> None:
        """If `bytes_per_s` is 0 or less, only the machine limits the rate."""
        self._bytes_per_s, self._latency_s = bytes_per_s, latency_s
        self._free_at: dict[str, float] = {}
        self._lock = Lock()

    def transfer(self, holder: str, size: int, now: float) -> float:
        """Return the seconds from `now` until `size` bytes have arrived from the holder."""
        if self._bytes_per_s <= 0:
            return 0.0
        with self._lock:
            self._free_at = {name: free for name, free in self._free_at.items() if free > now}
            free_at = max(now, self._free_at.get(holder, now)) + size / self._bytes_per_s
            self._free_at[holder] = free_at
        return free_at - now + self._latency_s


_PIECE_BLOCKS = 8
"""Number of blocks per piece; the deadline is checked between pieces."""


class BlockLoading(msgspec.Struct, frozen=True, kw_only=True):
    """The load of one request: its blocks `held` … `end`, within a time limit in seconds."""

    tokens: array[int]
    held: int
    end: int
    salt: str
    holders: Sequence[str]
    budget_s: float


class LoadCounts(msgspec.Struct):
    """Number of blocks by outcome. Mutable; guarded by the loader's lock."""

    loaded: int = 0
    missing: int = 0
    failed: int = 0
    late: int = 0
    wrong: int = 0
    """Blocks whose bytes do not match their tokens although the checksum matched: a fault of the store."""


class SimulatedBlockLoader:
    """Loads blocks; `load` is thread-safe."""

    def __init__(self, client: TransferClient, node: str, payloads: Payloads, link: ScaledLink) -> None:
        """`node` is the engine's own node, `link` the path to all other nodes."""
        self._client, self._node, self._payloads, self._link = client, node, payloads, link
        self.counts = LoadCounts()
        self._lock = Lock()
        self._closed = Event()

    def load(self, wanted: BlockLoading, clock: Callable[[], float] = time.monotonic) -> KvOutcome:
        """Fetch a prompt's blocks; see `fetch`."""
        hashes = chain_hashes(wanted.tokens, self._payloads.block_tokens, wanted.end)[wanted.held :]
        return self.fetch(hashes, wanted, clock)

    def fetch(
        self, hashes: Sequence[bytes], wanted: BlockLoading, clock: Callable[[], float] = time.monotonic
    ) -> KvOutcome:
        """Fetch blocks piece by piece until one is missing or the time limit is reached."""
        began = clock()
        holder, came, reason = "", 0, ""
        while came < len(hashes) and not reason:
            if self._closed.is_set() or clock() - began > wanted.budget_s:
                reason = "late"
                break
            piece = hashes[came : came + _PIECE_BLOCKS]
            giver, whole, reason = self._piece(piece, wanted)
            holder = holder or giver
            came += whole
        if reason:
            with self._lock:
                setattr(self.counts, reason, getattr(self.counts, reason) + len(hashes) - came)
        with self._lock:
            self.counts.loaded += came
        size, seconds = came * self._payloads.block_bytes, clock() - began
        return KvOutcome(loaded_blocks=came, loaded_bytes=size, seconds=seconds, holder=holder, reason=reason)

    def close(self) -> None:
        """End each load after its current piece."""
        self._closed.set()

    def _piece(self, piece: Sequence[bytes], wanted: BlockLoading) -> tuple[str, int, str]:
        """Return the holder of the first block, the number of received leading blocks, and why others are missing."""
        named = self._payloads.keys(wanted.salt)
        received = self._client.get(wanted.holders, [Wanted(named.key(item)) for item in piece], FlowPriority.REQUEST)
        right = self._right(received.blocks, piece)
        for holder, blocks in Counter(block.holder for block in right).items():
            # The own node is this host's memory, to which the link's limit does not apply.
            if holder != self._node:
                # Waits on the event, so that closing ends it early.
                self._closed.wait(self._link.transfer(holder, blocks * self._payloads.block_bytes, time.monotonic()))
        if len(right) == len(piece):
            return received.holder, len(right), ""
        return received.holder if right else "", len(right), received.reason or "missing"

    def _right(self, results: Sequence[Fetched | None], piece: Sequence[bytes]) -> list[Fetched]:
        """Return the leading blocks that were received and match their tokens."""
        right: list[Fetched] = []
        for fetched, chain_hash in zip(results, piece, strict=True):
            if fetched is None:
                break
            if fetched.payload != self._payloads.payload(chain_hash):
                with self._lock:
                    self.counts.wrong += 1
                break
            right.append(fetched)
        return right
