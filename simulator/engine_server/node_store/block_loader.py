"""Loads leading blocks of a prompt from nodes before its prefill, as long as that is faster than computing them.

Payloads and links are scaled alike: an engine whose model has `kv_bytes_per_token` moves far fewer bytes per token, and
its link carries as many fewer per second, so that a transfer takes the seconds that the real one would. The machine's
own transport is faster than the scaled link and its real seconds count as part of it; the rest is waited for. The
engine's own node stands for its host's memory, over whose bus the link's limit does not apply.
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
"""Between two pieces the deadline is looked at."""


class BlockLoading(msgspec.Struct, frozen=True, kw_only=True):
    """What one request wants: its blocks `held` … `end`, within so many seconds."""

    tokens: array[int]
    held: int
    end: int
    salt: str
    holders: Sequence[str]
    budget_s: float


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it: so many blocks behind those that the engine held."""

    blocks: int = 0
    bytes: int = 0
    seconds: float = 0.0
    holder: str = ""
    reason: str = ""
    """missing, failed or late; empty: all came."""


class LoadCounts(msgspec.Struct):
    """Mutable: blocks by what became of them, guarded by the loader's lock."""

    loaded: int = 0
    missing: int = 0
    failed: int = 0
    late: int = 0
    wrong: int = 0
    """Blocks whose bytes are not those that their tokens say, although their checksum agreed: a fault of the store."""


class SimulatedBlockLoader:
    """For any number of threads; `load` blocks."""

    def __init__(self, client: TransferClient, node: str, payloads: Payloads, link: ScaledLink) -> None:
        """`node` is the engine's own, `link` the way to all others."""
        self._client, self._node, self._payloads, self._link = client, node, payloads, link
        self.counts = LoadCounts()
        self._lock = Lock()
        self._closed = Event()

    def load(self, wanted: BlockLoading, clock: Callable[[], float] = time.monotonic) -> Loaded:
        """Fetch blocks piece by piece until some are missing or time runs out."""
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
        """Let loads end after the piece that is under way."""
        self._closed.set()

    def _piece(self, piece: Sequence[bytes], wanted: BlockLoading) -> tuple[str, int, str]:
        """Return who gave the first block, how many leading blocks came, and why not all."""
        named = self._payloads.keys(wanted.salt)
        keys = [named.key(item) for item in piece]
        giver, whole, answered = "", 0, False
        for holder in wanted.holders:
            found = self._client.get([holder], [Wanted(key) for key in keys[whole:]], FlowPriority.REQUEST)
            came = self._right(found, piece[whole:])
            if came:
                giver = giver or holder
                if holder != self._node:
                    self._closed.wait(self._link.transfer(holder, came * self._payloads.block_bytes, time.monotonic()))
            whole += came
            if whole == len(piece):
                return giver, whole, ""
            answered = answered or self._answers(holder, keys[whole])
        return giver, whole, "missing" if answered else "failed"

    def _right(self, found: Sequence[Fetched | None], piece: Sequence[bytes]) -> int:
        """Return how many leading blocks came and are what their tokens say."""
        for place, (fetched, chain_hash) in enumerate(zip(found, piece, strict=True)):
            if fetched is None:
                return place
            if fetched.payload != self._payloads.payload(chain_hash):
                with self._lock:
                    self.counts.wrong += 1
                return place
        return len(found)

    def _answers(self, holder: str, key: bytes) -> bool:
        """Return whether the holder is there, so that what it did not give is missing there."""
        try:
            self._client.call(holder, Lookup([key]))
        except PeerError:
            return False
        return True
