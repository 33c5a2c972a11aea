"""Copy new blocks to SSD in the background, so that their copies in DRAM can later be evicted at once.

By the policy `peaks`, only pinned blocks are copied, and those that arrive while DRAM is nearly full (Mooncake §5.2).
"""

from __future__ import annotations

import queue
import threading

from kvstore.node.block_store import BlockStore
from kvstore.tiers.block_facts import DRAM

MAX_WAITING = 65_536
ALL, PEAKS = "write_through", "peaks"
SSD_POLICIES = (ALL, PEAKS)
NEARLY_FULL = 0.9
"""Share of DRAM slots in use from which the policy `peaks` copies new blocks."""
_PAUSE_S = 1.0
"""Delay before retrying a full or failing disk that rejected a block."""


class WriteThrough:
    """One thread with a bounded queue. If the queue is full, a block stays only in DRAM."""

    def __init__(self, store: BlockStore) -> None:
        self._store = store
        self.policy = ALL
        """One of SSD_POLICIES, for blocks from now on."""
        store.on_stored = self.add
        self._waiting: queue.Queue[bytes | None] = queue.Queue(MAX_WAITING)
        self._hurry = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kv-write-through", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def add(self, key: bytes) -> None:
        """Queue a block, if the policy keeps it on SSD. Callers must not hold a lock."""
        if self.policy == PEAKS and not self._is_wanted(key):
            return
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

    def _is_wanted(self, key: bytes) -> bool:
        store = self._store
        with store.lock:
            record, slots = store.catalog.find(key), store.catalog.settings.dram_slots
            is_peak = store.catalog.used_slots(DRAM) >= NEARLY_FULL * slots
            return record is not None and (record.pinned_until > 0 or is_peak)

    def _run(self) -> None:
        while (key := self._waiting.get()) is not None:
            if not self._store.write_through(key):
                # A full disk would reject the next block, too.
                self._hurry.wait(_PAUSE_S)
