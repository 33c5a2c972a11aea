"""Usable capacity of an SSD tier: slots are withheld while the disk lacks space for them.

A disk can be smaller than the tier, and other programs write to it too, such as the database. The node leaves them a
reserve and compares the free space with it at each tick. Above the reserve, as many slots without disk space can be
used as fit. Below it, none can, and slots release their space: first free slots, then those of the blocks that would be
evicted next.

Free space shows neither quotas nor limits on file sizes. So a write rejected by the disk also withholds all slots
without space. One slot is retried after a second, and after each rejection the delay doubles, up to a minute. When the
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
from kvstore.transactions.block_record import ClearedSlot

RETRY_MIN_S, RETRY_MAX_S = 1.0, 60.0
GIVEN_BACK_BYTES = 256 << 20
"""Maximum bytes released per tick."""
_AT_ONCE = 256
"""Slots taken per lock."""
_REMEDY = "put --directory on a separate file system, or on one that can punch holes (ext4, XFS, Btrfs, tmpfs)"
# The latter two: quotas and limits of file sizes, which free space does not show.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_BLOCK = BlockFacts(b"", 0)
_log = logging.getLogger(__name__)


class DiskRoom:
    """Limits the slots of an SSD tier to the available disk space. Guarded by the store's lock.

    Mutable state: the space at the last reading, whether the disk rejected a write, the slot being retried, the next
    retry time, and the retry delay.
    """

    def __init__(
        self,
        catalog: BlockCatalog,
        file: SlotFile,
        lock: threading.Lock,
        clock: Callable[[], float],
        reserve: int | None,
    ) -> None:
        """Read the free space.

        `reserve`: bytes of the file system that stay free, None for the default share of its size.
        """
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
        """Record a failed write. The slot is free."""
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
        """Record a successful write."""
        with self._lock:
            if slot == self._tried:
                self._rejected, self._tried, self._pause_s = False, None, RETRY_MIN_S
                self._free.allow(self._fitting())

    def tick(self) -> None:
        """Compare the free space with the reserve, and release, allow, or retry slots."""
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
        """Return how many slots to release in this tick to restore the reserve."""
        lacking = min(self.reserve_bytes - self.space.free_bytes, GIVEN_BACK_BYTES)
        return max(0, -(-lacking // self._file.stride))

    def _give_back(self, slots: int) -> None:
        """Release the disk space of up to `slots` slots that are free or whose blocks can be evicted."""
        while slots > 0 and self._gives_back:
            with self._lock:
                taken = [self._catalog.take_slot(SSD) for _ in range(min(slots, _AT_ONCE))]
            # Without the lock, since this waits for the disk.
            released = [slot for slot in taken if slot is not None and self._released(slot)]
            with self._lock:
                self._free.give_blank(released)
            slots = 0 if None in taken else slots - len(taken)

    def _released(self, slot: int) -> bool:
        """Release the disk space of an unused slot.

        If the file system cannot, queue it for overwriting and return False.
        """
        try:
            self._file.punch(slot)
        except OSError as error:
            if self._gives_back:
                _log.warning("the SSD tier cannot release disk space: %s; %s", error.strerror, _REMEDY)
            self._gives_back = False
            with self._lock:
                self._catalog.slot_not_cleared(ClearedSlot(SSD, slot, _NO_BLOCK, scrub=True))
            return False
        return True
