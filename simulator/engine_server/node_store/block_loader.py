"""Loads a prompt's leading blocks from nodes before its prefill, as long as that is faster than computing them.

Payloads and links are scaled alike. An engine's model has small `kv_bytes_per_token`, and its link carries
proportionally fewer bytes per second, so that a transfer takes as long as a real one. The machine's own transport is
faster than the scaled link: its real seconds count as part of the transfer, and the loader waits for the remaining
time. The engine's own node represents its host's memory, to which the link's limit does not apply.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Sequence
from threading import Event, Lock

import msgspec

from kvstore.transfer.connection import PeerError
from kvstore.transfer.flow_control import FlowPriority
from kvstore.transfer.frames import Lookup
from kvstore.transfer.transfer_client import Fetched, TransferClient, Wanted
from simulator.engine_server.node_store.payloads import Payloads, chain_hashes
from simulator.engine_server.node_store.scaled_link import ScaledLink

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


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a load. `blocks` is the number of loaded blocks after those that the engine already held."""

    blocks: int = 0
    bytes: int = 0
    seconds: float = 0.0
    holder: str = ""
    reason: str = ""
    """One of missing, failed, or late; empty if all blocks were loaded."""


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

    def load(self, wanted: BlockLoading, clock: Callable[[], float] = time.monotonic) -> Loaded:
        """Fetch blocks piece by piece until one is missing or the time limit is reached."""
        began = clock()
        hashes = chain_hashes(wanted.tokens, self._payloads.block_tokens, wanted.end)[wanted.held :]
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
        size = came * self._payloads.block_bytes
        return Loaded(blocks=came, bytes=size, seconds=clock() - began, holder=holder if came else "", reason=reason)

    def close(self) -> None:
        """End each load after its current piece."""
        self._closed.set()

    def _piece(self, piece: Sequence[bytes], wanted: BlockLoading) -> tuple[str, int, str]:
        """Return the holder of the first block, the number of received leading blocks, and why others are missing."""
        named = self._payloads.keys(wanted.salt)
        keys = [named.key(item) for item in piece]
        giver, whole, answered = "", 0, False
        for holder in wanted.holders:
            results = self._client.get([holder], [Wanted(key) for key in keys[whole:]], FlowPriority.REQUEST)
            came = self._right(results, piece[whole:])
            if came:
                giver = giver or holder
                # The own node is this host's memory, to which the link's limit does not apply.
                if holder != self._node:
                    # Waits on the event, so that closing ends it early.
                    self._closed.wait(self._link.transfer(holder, came * self._payloads.block_bytes, time.monotonic()))
            whole += came
            if whole == len(piece):
                return giver, whole, ""
            answered = answered or self._answers(holder, keys[whole])
        return giver, whole, "missing" if answered else "failed"

    def _right(self, results: Sequence[Fetched | None], piece: Sequence[bytes]) -> int:
        """Return how many leading blocks were received and match their tokens."""
        for index, (fetched, chain_hash) in enumerate(zip(results, piece, strict=True)):
            if fetched is None:
                return index
            if fetched.payload != self._payloads.payload(chain_hash):
                with self._lock:
                    self.counts.wrong += 1
                return index
        return len(results)

    def _answers(self, holder: str, key: bytes) -> bool:
        """Return whether the holder responds. If so, a block that it did not send is missing there."""
        try:
            self._client.call(holder, Lookup([key]))
        except PeerError:
            return False
        return True
