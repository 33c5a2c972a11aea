"""Load stored blocks into the engine's KV caches, concurrently with the engine's steps or layer by layer within one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import msgspec

from kvstore.backends.backend import KvBackend
from kvstore.connector.engine_params import KvOutcome
from kvstore.connector.layered_load import LayeredLoad
from kvstore.connector.load_book import LoadBook
from kvstore.connector.step_messages import LoadEnd, LoadJob
from kvstore.transfer.flow_control import FlowPriority
from kvstore.transfer.transfer_client import Received, Wanted

MIN_PART_BYTES = 256 << 10
"""Bytes for which a round trip to a node is worthwhile. Smaller layers arrive together."""


class BlockMemory(Protocol):
    """The engine's KV caches in blocks; a payload holds one block of all layers, in the order of their computation."""

    payload_bytes: int
    layer_ends: Sequence[int]
    """End of each layer in a payload."""

    def layers_of(self, name: str) -> range:
        """Return the numbers of the caches of the layer with this name in the engine, or the end of all if unknown."""

    def buffer(self, blocks: int) -> memoryview:
        """Return host memory for the payloads of this many blocks."""

    def mark(self) -> Any:
        """Return the current point in the engine's work, for copies in another thread."""

    def gather(self, block_ids: Sequence[int], payloads: memoryview, layers: Sequence[int], mark: Any) -> None:
        """Copy layers of blocks into their payloads, as computed at the mark."""

    def scatter(self, block_ids: Sequence[int], payloads: memoryview, layers: Sequence[int], mark: Any) -> None:
        """Write layers of payloads into blocks, after the engine's work up to the mark."""


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
        self._layers = range(len(memory.layer_ends))
        self._threads = ThreadPoolExecutor(threads, "kv-load")
        # A step waits for these, and must not wait for others.
        self._layer_threads = ThreadPoolExecutor(threads, "kv-load-layers")
        # Loads of requests must not wait for prefetches.
        self._prefetch_threads = ThreadPoolExecutor(1, "kv-prefetch")

    def begin(self, job: LoadJob, keys: Sequence[bytes]) -> None:
        """Load in the background. The outcome is recorded in the book."""
        self._book.begin(job, self._clock())
        threads = self._prefetch_threads if job.prefetch else self._threads
        threads.submit(self._load, job, keys, self._clock(), self._memory.mark())

    def begin_layers(self, job: LoadJob, keys: Sequence[bytes]) -> LayeredLoad:
        """Load layer by layer, and return the load for the engine to wait for."""
        load = LayeredLoad(job, self._clock)
        self._layer_threads.submit(self._load_layers, load, keys, self._memory.mark())
        return load

    def close(self) -> None:
        """Start no more loads."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._layer_threads.shutdown(wait=False, cancel_futures=True)
        self._prefetch_threads.shutdown(wait=False, cancel_futures=True)

    def _load(self, job: LoadJob, keys: Sequence[bytes], began: float, mark: Any) -> None:
        outcome, payloads = KvOutcome(reason="failed"), memoryview(b"")
        try:
            # A load that timed out in the queue of threads fetches nothing.
            if self._book.is_waiting(job.request_id):
                payloads, wanted = self._buffers(keys)
                priority = FlowPriority.ADVISORY if job.prefetch else FlowPriority.REQUEST
                outcome = self._outcome(self._backend.get(wanted, job.holders, priority))
        finally:
            # Too late otherwise: the engine may have given the blocks to another request.
            if self._book.claim(job.request_id):
                self._write(job, outcome, payloads, began, mark)

    def _write(self, job: LoadJob, came: KvOutcome, payloads: memoryview, began: float, mark: Any) -> None:
        outcome = KvOutcome(reason="failed")
        try:
            if came.loaded_blocks:
                blocks = job.block_ids[: came.loaded_blocks]
                self._memory.scatter(blocks, payloads[: came.loaded_bytes], self._layers, mark)
            outcome = msgspec.structs.replace(came, seconds=self._clock() - began)
        finally:
            # Also where the copy fails: the engine holds the request back until its load has ended.
            self._book.end(LoadEnd(request_id=job.request_id, outcome=outcome, prefetch=job.prefetch))

    def _load_layers(self, load: LayeredLoad, keys: Sequence[bytes], mark: Any) -> None:
        outcome = KvOutcome(reason="failed")
        try:
            outcome = self._streamed(load, keys, mark)
        finally:
            load.end(outcome)

    def _streamed(self, load: LayeredLoad, keys: Sequence[bytes], mark: Any) -> KvOutcome:
        """Read the blocks from the first holder in parts, or from all holders if that one lacks some."""
        job, parts = load.job, self._parts(len(keys))
        payloads, wanted = self._buffers(keys)

        def write(blocks: int, layers: int) -> bool:
            ids, size = job.block_ids[:blocks], blocks * self._memory.payload_bytes
            new = range(load.written, layers)
            return load.write(layers, lambda: self._memory.scatter(ids, payloads[:size], new, mark))

        def arrived(part: int) -> None:
            if not write(len(keys), parts[part]):
                raise TimeoutError("the engine no longer waits for the load")

        ends = [self._memory.layer_ends[layers - 1] for layers in parts]
        received = self._backend.stream(wanted, job.holders, ends, arrived)
        # Layers of two copies are not mixed: where one was used, only its own bytes count.
        if load.written:
            return self._outcome(received)
        outcome = self._outcome(self._backend.get(wanted, job.holders) if None in received.blocks else received)
        if outcome.loaded_blocks:
            write(outcome.loaded_blocks, len(self._layers))
        return outcome

    def _parts(self, blocks: int) -> list[int]:
        """Return the number of layers up to the end of each part."""
        parts, begin = [], 0
        for layers, end in enumerate(self._memory.layer_ends, 1):
            if (end - begin) * blocks >= MIN_PART_BYTES or layers == len(self._layers):
                parts.append(layers)
                begin = end
        return parts

    def _buffers(self, keys: Sequence[bytes]) -> tuple[memoryview, list[Wanted]]:
        """Return one buffer, so that the leading blocks are contiguous as `scatter` takes them, and its blocks."""
        size = self._memory.payload_bytes
        payloads = memoryview(bytearray(size * len(keys)))
        return payloads, [Wanted(key, payloads[index * size : (index + 1) * size]) for index, key in enumerate(keys)]

    def _outcome(self, received: Received) -> KvOutcome:
        """Only leading blocks of the prompt are useful."""
        size = self._memory.payload_bytes
        there = [block is not None and len(block.payload) == size for block in received.blocks]
        blocks = there.index(False) if False in there else len(there)
        reason = "" if blocks == len(there) else received.reason or "missing"
        holder = received.holder if blocks else ""
        return KvOutcome(loaded_blocks=blocks, loaded_bytes=blocks * size, holder=holder, reason=reason)
