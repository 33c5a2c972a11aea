"""Usable capacity of an SSD tier: slots without disk space are withheld until there is space.

A disk may be smaller than the tier, or others may fill it. The first write that it rejects takes all free slots out of
use that were never written: those that were have their space. New blocks then take the place of old ones. One slot
is tried again after a second, and with each rejection after twice the time, up to a minute; when the disk takes it, all
come back.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable

from kvstore.tiers.block_facts import SSD
from kvstore.tiers.slot_file import SlotFile
from kvstore.transactions.block_catalog import BlockCatalog

RETRY_MIN_S, RETRY_MAX_S = 1.0, 60.0
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class DiskRoom:
    """Guarded by the store's lock. Mutable state: the slot that is tried, when the next one is, and the pause then."""

    def __init__(self, catalog: BlockCatalog, file: SlotFile, lock: threading.Lock, clock: Callable[[], float]) -> None:
        self._free, self._file, self._lock, self._clock = catalog.free_slots(SSD), file, lock, clock
        self._tried: int | None = None
        self._retry_at, self._pause_s = 0.0, RETRY_MIN_S

    def refused(self, slot: int, error: OSError) -> None:
        """Hear of a write that failed; nobody uses the slot any more."""
        if error.errno not in _FULL:
            return
        with self._lock:
            free = self._free.listed()
        without = {slot, *(each for each in free if not self._file.was_written(each))}
        with self._lock:
            self._free.withhold(without)
            self._tried, self._retry_at = None, self._clock() + self._pause_s
            self._pause_s = min(2 * self._pause_s, RETRY_MAX_S)

    def taken(self, slot: int) -> None:
        """Hear of a write that succeeded."""
        with self._lock:
            if slot == self._tried:
                self._tried, self._pause_s = None, RETRY_MIN_S
                self._free.give_back(self._free.slots)

    def tick(self) -> None:
        """Have a slot tried again now and then."""
        with self._lock:
            if self._free.withheld and self._clock() >= self._retry_at:
                self._retry_at = self._clock() + RETRY_MAX_S
                self._tried = self._free.give_back(1)
