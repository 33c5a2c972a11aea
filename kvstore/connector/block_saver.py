"""Store computed blocks in the background, within a memory limit."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from kvstore.backends.backend import KvBackend
from kvstore.connector.step_messages import SaveJob
from kvstore.tiers.block_facts import BlockFacts, checksum_of
from kvstore.transfer.connection import PeerError
from kvstore.transfer.frames import MAX_PAYLOAD_BYTES

_PIECE_BLOCKS, _PIECE_BYTES = 512, 8 << 20


class _Batch(NamedTuple):
    job: SaveJob
    keys: Sequence[bytes]
    parent_keys: Sequence[bytes]
    payloads: memoryview


class BlockSaver:
    """Stores blocks in one thread.

    Mutable state, guarded by `_turn`: waiting batches, their bytes, and blocks that were not stored.
    """

    def __init__(self, backend: KvBackend, block_tokens: int, payload_bytes: int, buffer_bytes: int) -> None:
        """Start the thread. Raises ValueError if a block is larger than a node accepts."""
        if payload_bytes > MAX_PAYLOAD_BYTES:
            raise ValueError(
                f"a block has {payload_bytes} bytes, over the nodes' limit of {MAX_PAYLOAD_BYTES}: use smaller blocks"
            )
        self._backend, self._tokens = backend, block_tokens
        self._payload_bytes, self._buffer_bytes = payload_bytes, buffer_bytes
        self._turn = threading.Condition()
        self._waiting: deque[_Batch] = deque()
        self._held_bytes = 0
        self._unsaved: list[bytes] = []
        self._closed = False
        self.stored = 0
        """Blocks that the store accepted or already had."""
        self._thread = threading.Thread(target=self._run, name="kv-save", daemon=True)
        self._thread.start()

    def reserve(self, job: SaveJob) -> bool:
        """Reserve memory for a job's blocks, or record them as not stored. A single batch is always accepted."""
        with self._turn:
            size = len(job.block_ids) * self._payload_bytes
            # One batch alone may exceed the limit, or a long prompt would never be stored.
            fits = not self._held_bytes or self._held_bytes + size <= self._buffer_bytes
            if fits:
                self._held_bytes += size
            else:
                self._unsaved += job.chain_hashes
            return fits

    def release(self, job: SaveJob) -> None:
        """Give up a job's reservation, and record its blocks as not stored."""
        with self._turn:
            self._unsaved += job.chain_hashes
            self._held_bytes -= len(job.block_ids) * self._payload_bytes

    def offer(self, job: SaveJob, keys: Sequence[bytes], parent_keys: Sequence[bytes], payloads: memoryview) -> None:
        """Queue the blocks of a reserved job for storing. The saver owns `payloads` afterwards."""
        with self._turn:
            self._waiting.append(_Batch(job, keys, parent_keys, payloads))
            self._turn.notify_all()

    def take_unsaved(self) -> list[bytes]:
        """Return the chain hashes of blocks that could not be stored since the last call."""
        with self._turn:
            unsaved, self._unsaved = self._unsaved, []
        return unsaved

    def settle(self, timeout_s: float) -> bool:
        """Wait until all batches are stored. Return False on timeout."""
        with self._turn:
            return self._turn.wait_for(lambda: not self._held_bytes, timeout_s)

    def close(self, timeout_s: float) -> None:
        """Store the queued batches within the timeout, and stop the thread."""
        self.settle(timeout_s)
        with self._turn:
            self._closed = True
            self._turn.notify_all()

    def _run(self) -> None:
        while True:
            with self._turn:
                self._turn.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return
                batch = self._waiting.popleft()
            # All of them until `_store` returns: after an unexpected error no block may count as stored.
            unsaved: Sequence[bytes] = batch.job.chain_hashes
            try:
                unsaved = self._store(batch)
            finally:
                with self._turn:
                    self._unsaved += unsaved
                    self._held_bytes -= len(batch.payloads)
                    self._turn.notify_all()

    def _store(self, batch: _Batch) -> list[bytes]:
        """Send the blocks that the store lacks. Return the chain hashes of rejected ones."""
        piece = max(1, min(_PIECE_BLOCKS, _PIECE_BYTES // self._payload_bytes))
        unsaved: list[bytes] = []
        for first in range(0, len(batch.keys), piece):
            indices = range(first, min(first + piece, len(batch.keys)))
            if not self._put(batch, indices):
                unsaved += [batch.job.chain_hashes[index] for index in indices]
        self.stored += len(batch.keys) - len(unsaved)
        return unsaved

    def _put(self, batch: _Batch, indices: Sequence[int]) -> bool:
        try:
            # Blocks that the node has are not sent again.
            held = self._backend.exist([batch.keys[index] for index in indices])
            new = [index for index, there in zip(indices, held, strict=True) if not there]
            known = [batch.keys[index] for index, there in zip(indices, held, strict=True) if there]
            # A put pins only what it stores.
            if known and batch.job.hint == "context_cache":
                self._backend.pin(known, batch.job.pin_s)
            blocks = [self._block(batch, index) for index in new]
            return not blocks or self._backend.put(blocks, batch.job.hint, batch.job.pin_s)
        # Storing is best effort: the scheduler offers unsaved blocks again when they are used next.
        except (PeerError, TimeoutError):
            return False

    def _block(self, batch: _Batch, index: int) -> tuple[BlockFacts, memoryview]:
        size, job = self._payload_bytes, batch.job
        payload = batch.payloads[index * size : (index + 1) * size]
        facts = BlockFacts(
            batch.keys[index],
            size,
            job.chain_hashes[index],
            batch.parent_keys[index],
            self._tokens,
            job.tenant,
            checksum_of(payload),
            job.routing_keys[index],
        )
        return facts, payload
