"""Usable capacity of an SSD tier: slots without disk space are withheld until there is space for them.

A disk may be smaller than the tier, and others write to it too, such as the database. The node leaves them a reserve.
Each tick compares the free space with it. Above the reserve, as many slots without disk space may be used as fit. Below
it, none may, and slots release theirs: free ones first, then those of the blocks that would be evicted next.

Free space shows neither quotas nor limits of file sizes. So a write that the disk rejects withholds all slots without
space, too. One slot is retried after a second, and with each rejection after twice the time, up to a minute. When the
disk accepts it, the free space decides again.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import threading
from collections.abc import Callable

from kvstore.node.disk_space import space_of, usual_reserve
from kvstore.tiers.block_facts import SSD, BlockFacts
from kvstore.tiers.slot_file import SlotFile
from kvstore.transactions.block_catalog import BlockCatalog
from kvstore.transactions.block_changes import ClearedSlot

RETRY_MIN_S, RETRY_MAX_S = 1.0, 60.0
GIVEN_BACK_BYTES = 256 << 20
"""Most bytes released by one tick."""
_AT_ONCE = 256
"""Slots that are taken under one lock."""
_REMEDY = "put --directory on a file system of its own, or on one that can punch holes (ext4, XFS, Btrfs, tmpfs)"
# The latter two: quotas and limits of file sizes, which free space does not show.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_BLOCK = BlockFacts(b"", 0)
_log = logging.getLogger(__name__)


class DiskRoom:
    """Guarded by the store's lock. Mutable state: the space at the last reading, whether the disk rejected a write, the
    slot that is tried, when the next one is, and the pause then.
    """

    def __init__(
        self,
        catalog: BlockCatalog,
        file: SlotFile,
        lock: threading.Lock,
        clock: Callable[[], float],
        reserve: int | None,
    ) -> None:
        """`reserve`: bytes of the file system that stay free; None: the usual part of its size."""
        self._catalog, self._file, self._lock, self._clock = catalog, file, lock, clock
        self._free = catalog.free_slots(SSD)
        self.space = space_of(file.fileno())
        self.reserve_bytes = usual_reserve(self.space.total_bytes) if reserve is None else reserve
        self._rejected, self._gives_back = False, True
        self._tried: int | None = None
        self._retry_at, self._pause_s = 0.0, RETRY_MIN_S
        written = file.written_slots()
        self._free.without_space(slot for slot in self._free.listed() if not written[slot])
        self._free.allow(self._fitting())

    def rejected(self, slot: int, error: OSError) -> None:
        """Note a write that failed; the slot is free."""
        # Any other error is a disk that fails, which needs no space.
        if error.errno not in _FULL:
            return
        with self._lock:
            self._free.without_space((slot,))
            self._free.allow(0)
            self._rejected = True
            self._tried, self._retry_at = None, self._clock() + self._pause_s
            self._pause_s = min(2 * self._pause_s, RETRY_MAX_S)

    def taken(self, slot: int) -> None:
        """Note a write that succeeded."""
        with self._lock:
            if slot == self._tried:
                self._rejected, self._tried, self._pause_s = False, None, RETRY_MIN_S
                self._free.allow(self._fitting())

    def tick(self) -> None:
        """Compare the free space with the reserve; release slots, allow more of them, or retry one."""
        space = self.space
        # Where the disk does not answer, the last reading serves.
        with contextlib.suppress(OSError):
            space = space_of(self._file.fileno())
        with self._lock:
            self.space = space
            if not self._rejected:
                self._free.allow(self._fitting())
            elif self._fitting() and self._clock() >= self._retry_at:
                # A block that takes the slot sets the next moment itself; this one counts if none does.
                self._retry_at = self._clock() + RETRY_MAX_S
                self._tried = self._free.allow_next()
        self._give_back(self._missing())

    def _fitting(self) -> int:
        """Return how many slots without space fit above the reserve."""
        return max(0, self.space.free_bytes - self.reserve_bytes) // self._file.stride

    def _missing(self) -> int:
        """Return how many slots' space the reserve lacks, as far as one tick releases it."""
        lacking = min(self.reserve_bytes - self.space.free_bytes, GIVEN_BACK_BYTES)
        return max(0, -(-lacking // self._file.stride))

    def _give_back(self, slots: int) -> None:
        """Release the space of `slots` slots, as far as slots are free or their blocks may leave."""
        while slots > 0 and self._gives_back:
            with self._lock:
                taken = [self._catalog.take_slot(SSD) for _ in range(min(slots, _AT_ONCE))]
            # Without the lock, since this waits for the disk.
            released = [slot for slot in taken if slot is not None and self._released(slot)]
            with self._lock:
                self._free.give_blank(released)
            slots = 0 if None in taken else slots - len(taken)

    def _released(self, slot: int) -> bool:
        """Release an unused slot; where the file system cannot, have it overwritten, and return False."""
        try:
            self._file.punch(slot)
        except OSError as error:
            if self._gives_back:
                _log.warning("the SSD tier cannot give disk space back: %s; %s", error.strerror, _REMEDY)
            self._gives_back = False
            with self._lock:
                self._catalog.slot_not_cleared(ClearedSlot(SSD, slot, _NO_BLOCK, scrub=True))
            return False
        return True
