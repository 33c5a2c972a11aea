"""Stores computed blocks on the engine's node in the background."""

from __future__ import annotations

import threading
from array import array
from collections import deque

import msgspec

from kvstore.connector.engine_params import LoadInstruction
from kvstore.tiers.block_facts import BlockFacts, checksum_of
from kvstore.transfer.connection import PeerError
from kvstore.transfer.flow_control import FlowPriority
from kvstore.transfer.frames import Done
from kvstore.transfer.transfer_client import TransferClient
from simulator.engine_server.node_store.payloads import Payloads, chain_hashes

MAX_WAITING = 256
_PIECE_BYTES = 8 << 20


class ComputedBlocks(msgspec.Struct, frozen=True, gc=False):
    """Blocks `first` … `end` of a prompt, which the engine has computed."""

    tokens: array[int]
    first: int
    end: int
    salt: str
    order: LoadInstruction


class SaveCounts(msgspec.Struct):
    """Number of blocks by outcome. Mutable; changed only by the saver."""

    saved: int = 0
    rejected: int = 0
    failed: int = 0
    dropped: int = 0


class SimulatedBlockSaver:
    """Stores blocks with one thread and a bounded queue. If it is full, the oldest prefill's blocks are dropped.

    Mutable state: `_waiting` and `counts`, guarded by `_changed`.
    """

    def __init__(self, client: TransferClient, node: str, payloads: Payloads) -> None:
        self._client, self._node, self._payloads = client, node, payloads
        self.counts = SaveCounts()
        self._waiting: deque[ComputedBlocks] = deque()
        self._changed = threading.Condition()
        self._busy = self._closed = False
        self._thread = threading.Thread(target=self._run, name="kv-save", daemon=True)
        self._thread.start()

    def add(self, stored: ComputedBlocks) -> None:
        """Queue blocks. Blocks of an ephemeral prompt are not stored below engine memory (Mooncake §5.2)."""
        if stored.order.hint == "ephemeral":
            return
        with self._changed:
            if len(self._waiting) >= MAX_WAITING:
                oldest = self._waiting.popleft()
                self.counts.dropped += oldest.end - oldest.first
            self._waiting.append(stored)
            self._changed.notify_all()

    def settled(self, timeout_s: float) -> bool:
        """Wait until the queue is empty; return False on timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and not self._busy, timeout_s)

    def close(self, timeout_s: float) -> None:
        """Stop after the current blocks; queued blocks are not stored."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify_all()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return
                stored = self._waiting.popleft()
                # `settled` counts it, although it has left the queue.
                self._busy = True
            self._save(stored)

    def _save(self, stored: ComputedBlocks) -> None:
        blocks = self._blocks(stored)
        per_piece = max(1, _PIECE_BYTES // self._payloads.block_bytes)
        for begin in range(0, len(blocks), per_piece):
            piece = blocks[begin : begin + per_piece]
            filled = [(facts, self._payloads.payload(facts.chain_hash)) for facts in piece]
            whole = [
                (msgspec.structs.replace(facts, checksum=checksum_of(payload)), payload) for facts, payload in filled
            ]
            hint, pin_s = stored.order.hint, stored.order.pin_s
            try:
                done = isinstance(self._client.put(self._node, whole, hint, pin_s, FlowPriority.REPLICATION), Done)
            except (PeerError, TimeoutError):
                # An unavailable node costs hits, but no answers.
                with self._changed:
                    self.counts.failed += len(blocks) - begin
                return
            with self._changed:
                self.counts.saved += len(piece) if done else 0
                self.counts.rejected += 0 if done else len(piece)

    def _blocks(self, stored: ComputedBlocks) -> list[BlockFacts]:
        payloads, order = self._payloads, stored.order
        # From the prompt's beginning, because hashes are chained.
        hashes = chain_hashes(stored.tokens, payloads.block_tokens, stored.end)
        named = payloads.keys(stored.salt)
        keys = [named.key(hash_) for hash_ in hashes]
        routing = order.routing_keys()
        return [
            BlockFacts(
                keys[block],
                payloads.block_bytes,
                hashes[block],
                keys[block - 1] if block else b"",
                payloads.block_tokens,
                order.tenant,
                routing_key=routing[block] if block < len(routing) else 0,
            )
            for block in range(stored.first, stored.end)
        ]
