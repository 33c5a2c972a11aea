"""Free space of a file system, and the reserve that node managers leave to other programs."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

_MIB = 1 << 20
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class DiskSpace(msgspec.Struct, frozen=True, kw_only=True):
    """Space of one file system at one time."""

    total_bytes: int
    free_bytes: int
    """Bytes that unprivileged programs can still write."""
    disk_id: str = ""
    """Identifies a file system to all processes of a machine. Empty if unknown."""


def space_of(where: Path | int) -> DiskSpace:
    """Return the space of the file system of a path or open file. Raises OSError."""
    stats, device = os.statvfs(where), where.stat() if isinstance(where, Path) else os.fstat(where)
    return DiskSpace(
        total_bytes=stats.f_blocks * stats.f_frsize,
        free_bytes=stats.f_bavail * stats.f_frsize,
        disk_id=_disk_id(device.st_dev),
    )


def usual_reserve(total_bytes: int) -> int:
    """Return the default reserve of a file system of this size: 5 %, from 1 to 16 GiB, and at most a fifth."""
    return min(max(total_bytes // 20, 1024 * _MIB), 16 * 1024 * _MIB, total_bytes // 5)


def _disk_id(device: int) -> str:
    try:
        boot = _BOOT.read_bytes()
    except OSError:
        return ""
    # Machines number their devices alike; the boot id is specific to one machine and its containers.
    return hashlib.sha256(b"%s%d" % (boot, device)).hexdigest()[:16]


WINDOW_S = 60.0
_MARK_S = 1.0


class DiskUse:
    """Busy time of a disk. Thread-safe. Mutable state: reads and writes in progress, and the busy seconds over time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._under_way, self._since, self._busy_s = 0, 0.0, 0.0
        self._marks: deque[tuple[float, float]] = deque([(clock(), 0.0)])

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Count the context's duration as busy. Overlaps count once."""
        with self._lock:
            self._under_way += 1
            if self._under_way == 1:
                self._since = self._clock()
        try:
            yield
        finally:
            with self._lock:
                self._under_way -= 1
                if not self._under_way:
                    self._busy_s += self._clock() - self._since

    def share(self) -> float:
        """Return the busy share of the last minute, 0..1. Call it every few seconds, to mark the minute's start."""
        with self._lock:
            now = self._clock()
            busy_s = self._busy_s + (now - self._since if self._under_way else 0.0)
            if now - self._marks[-1][0] >= _MARK_S:
                self._marks.append((now, busy_s))
            # One mark from before the minute stays, as its beginning.
            while len(self._marks) > 1 and self._marks[1][0] <= now - WINDOW_S:
                self._marks.popleft()
            at_s, before_s = self._marks[0]
            return min(1.0, (busy_s - before_s) / (now - at_s)) if now > at_s else 0.0
