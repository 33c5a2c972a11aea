"""Free space of a file system, and how much of it node managers leave to others."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import msgspec

_MIB = 1 << 20
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class DiskSpace(msgspec.Struct, frozen=True, kw_only=True):
    """One file system at a moment."""

    total_bytes: int
    free_bytes: int
    """That programs without special rights may still write."""
    disk_id: str = ""
    """The same for all processes of a machine that see the same file system; empty: unknown."""


def space_of(where: Path | int) -> DiskSpace:
    """Return the file system of a path or of an open file; raises OSError."""
    found, device = os.statvfs(where), where.stat() if isinstance(where, Path) else os.fstat(where)
    return DiskSpace(
        total_bytes=found.f_blocks * found.f_frsize,
        free_bytes=found.f_bavail * found.f_frsize,
        disk_id=_disk_id(device.st_dev),
    )


def usual_reserve(total_bytes: int) -> int:
    """Return how much of a file system of this size stays free: 5 %, from 1 to 16 GiB, and never more than a fifth."""
    return min(max(total_bytes // 20, 1024 * _MIB), 16 * 1024 * _MIB, total_bytes // 5)


def _disk_id(device: int) -> str:
    try:
        boot = _BOOT.read_bytes()
    except OSError:
        return ""
    # Machines number their devices alike; the number of the boot is one machine's, and its containers'.
    return hashlib.sha256(b"%s%d" % (boot, device)).hexdigest()[:16]
