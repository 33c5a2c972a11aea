"""Load stored blocks into the engine's KV caches, concurrently with the engine's steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import msgspec

from kvstore.backends.backend import KvBackend
from kvstore.connector.engine_params import KvOutcome
from kvstore.connector.load_book import LoadBook
from kvstore.connector.step_messages import LoadEnd, LoadJob
from kvstore.transfer.transfer_client import Wanted


class BlockMemory(Protocol):
    """The engine's KV caches in blocks; a payload holds one block of all layers."""

    payload_bytes: int

    def gather(self, block_ids: Sequence[int]) -> memoryview:
        """Return copies of the blocks' payloads, concatenated."""

    def scatter(self, block_ids: Sequence[int], payloads: memoryview) -> None:
        """Write payloads into blocks."""


class BlockLoader:
    """A pool of threads. Each load has its own thread, so none waits for the bytes of another."""

    def __init__(
        self,
        backend: KvBackend,
        memory: BlockMemory,
        book: LoadBook,
        clock: Callable[[], float],
        threads: int,
    ) -> None:
        self._backend, self._memory, self._book, self._clock = backend, memory, book, clock
        self._threads = ThreadPoolExecutor(threads, "kv-load")

    def begin(self, job: LoadJob, keys: Sequence[bytes]) -> None:
        """Load in the background. The outcome is recorded in the book."""
        self._book.begin(job, self._clock())
        self._threads.submit(self._load, job, keys, self._clock())

    def close(self) -> None:
        """Start no more loads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _load(self, job: LoadJob, keys: Sequence[bytes], began: float) -> None:
        outcome, payloads = KvOutcome(reason="failed"), memoryview(b"")
        try:
            # A load that timed out in the queue of threads fetches nothing.
            if self._book.is_waiting(job.request_id):
                outcome, payloads = self._fetch(job, keys)
        finally:
            # Too late otherwise: the engine may have given the blocks to another request.
            if self._book.claim(job.request_id):
                self._write(job, outcome, payloads, began)

    def _write(self, job: LoadJob, came: KvOutcome, payloads: memoryview, began: float) -> None:
        outcome = KvOutcome(reason="failed")
        try:
            if came.loaded_blocks:
                self._memory.scatter(job.block_ids[: came.loaded_blocks], payloads[: came.loaded_bytes])
            outcome = msgspec.structs.replace(came, seconds=self._clock() - began)
        finally:
            # Also where the copy fails: the engine holds the request back until its load has ended.
            self._book.end(LoadEnd(request_id=job.request_id, outcome=outcome))

    def _fetch(self, job: LoadJob, keys: Sequence[bytes]) -> tuple[KvOutcome, memoryview]:
        """Read the blocks from the job's holders. Only leading blocks of the prompt are useful."""
        size = self._memory.payload_bytes
        # One buffer, so that the leading blocks are contiguous, as `scatter` takes them.
        payloads = memoryview(bytearray(size * len(keys)))
        wanted = [Wanted(key, payloads[index * size : (index + 1) * size]) for index, key in enumerate(keys)]
        received = self._backend.get(wanted, job.holders)
        there = [block is not None and len(block.payload) == size for block in received.blocks]
        blocks = there.index(False) if False in there else len(there)
        reason = "" if blocks == len(keys) else received.reason or "missing"
        holder = received.holder if blocks else ""
        return KvOutcome(loaded_blocks=blocks, loaded_bytes=blocks * size, holder=holder, reason=reason), payloads
