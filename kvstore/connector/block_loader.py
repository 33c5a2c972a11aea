"""Load stored blocks into the engine's KV caches, concurrently with the engine's steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Protocol

from kvstore.backends.backend import KvBackend
from kvstore.connector.load_book import LoadBook
from kvstore.connector.step_messages import LoadEnd, LoadJob
from kvstore.transfer.connection import PeerError


class BlockMemory(Protocol):
    """The engine's KV caches in blocks; a payload holds one block of all layers."""

    payload_bytes: int

    def gather(self, block_ids: Sequence[int]) -> memoryview:
        """Return copies of the blocks' payloads, concatenated."""

    def scatter(self, block_ids: Sequence[int], payloads: memoryview) -> None:
        """Write payloads into blocks."""


class _Came(NamedTuple):
    """Number of leading blocks received, their holder, and why others are missing."""

    blocks: int = 0
    holder: str = ""
    reason: str = "failed"
    payloads: memoryview = memoryview(b"")


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
        came = _Came()
        try:
            # A load that timed out in the queue of threads fetches nothing.
            if self._book.is_waiting(job.request_id):
                came = self._fetch(job, keys)
        finally:
            # Too late otherwise: the engine may have given the blocks to another request.
            if self._book.claim(job.request_id):
                self._write(job, came, began)

    def _write(self, job: LoadJob, came: _Came, began: float) -> None:
        size = came.blocks * self._memory.payload_bytes
        end = LoadEnd(request_id=job.request_id, reason="failed")
        try:
            if came.blocks:
                self._memory.scatter(job.block_ids[: came.blocks], came.payloads[:size])
            seconds = self._clock() - began
            end = LoadEnd(
                request_id=job.request_id,
                blocks=came.blocks,
                loaded_bytes=size,
                seconds=seconds,
                holder=came.holder,
                reason=came.reason,
            )
        finally:
            # Also where the copy fails: the engine holds the request back until its load has ended.
            self._book.end(end)

    def _fetch(self, job: LoadJob, keys: Sequence[bytes]) -> _Came:
        """Query one holder after the other for missing blocks. Only leading blocks of the prompt are useful."""
        size, source, reason = self._memory.payload_bytes, "", "missing"
        # One buffer, so that the leading blocks are contiguous, as `scatter` takes them.
        payloads = memoryview(bytearray(size * len(keys)))
        views = [payloads[index * size : (index + 1) * size] for index in range(len(keys))]
        there = [False] * len(keys)
        for holder in job.holders:
            missing = [index for index, came in enumerate(there) if not came]
            received = self._backend.get([(keys[index], views[index]) for index in missing], holder)
            before = _leading(there)
            for index, payload in zip(missing, received, strict=True):
                there[index] = payload is not None and len(payload) == size
            leading = _leading(there)
            source = holder if leading > before else source
            if leading == len(keys):
                return _Came(leading, source, "", payloads)
            # A get returns the same for a miss and a dead node, which the gateway has to distinguish.
            reason = reason if self._answers(holder, keys[leading]) else "failed"
        return _Came(_leading(there), source, reason, payloads)

    def _answers(self, holder: str, key: bytes) -> bool:
        """Return whether a node without the block is alive, to distinguish a missing block from a missing node."""
        try:
            self._backend.exist([key], holder)
        except PeerError:
            return False
        return True


def _leading(came: Sequence[bool]) -> int:
    return next((index for index, there in enumerate(came) if not there), len(came))
