"""Copy new blocks to SSD in the background, so that their copies in DRAM can later be evicted at once."""

from __future__ import annotations

import queue
import threading

from kvstore.node.block_store import BlockStore

MAX_WAITING = 65_536
_PAUSE_S = 1.0
"""Delay before retrying a full or failing disk that rejected a block."""


class WriteThrough:
    """One thread with a bounded queue. If the queue is full, a block stays only in DRAM."""

    def __init__(self, store: BlockStore) -> None:
        self._store = store
        store.on_stored = self.add
        self._waiting: queue.Queue[bytes | None] = queue.Queue(MAX_WAITING)
        self._hurry = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kv-write-through", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def add(self, key: bytes) -> None:
        """Queue a block. Callers must not hold a lock."""
        try:
            # Storing must not wait for the disk.
            self._waiting.put_nowait(key)
        except queue.Full:
            with self._store.lock:
                self._store.counts.write_through_skipped += 1

    def waiting(self) -> int:
        """Return the number of queued blocks."""
        return self._waiting.qsize()

    def stop(self, timeout_s: float) -> bool:
        """Write the queued blocks and stop. Return False on timeout."""
        # Ends the pauses after rejected blocks: a full disk must not delay the drain.
        self._hurry.set()
        self._waiting.put(None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (key := self._waiting.get()) is not None:
            if not self._store.write_through(key):
                # A full disk would reject the next block, too.
                self._hurry.wait(_PAUSE_S)
