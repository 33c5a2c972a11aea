"""Free space of a file system, and the reserve that node managers leave to other programs."""

from __future__ import annotations

import hashlib
import os
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
