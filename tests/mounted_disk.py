"""A small file system for a test, on machines that permit mounts."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


class SmallDisk:
    """A mounted tmpfs of limited size."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fill(self) -> None:
        """Use all free space."""
        with (self.path / "filler").open("ab", buffering=0) as file, contextlib.suppress(OSError):
            for size in (1 << 20, 1 << 12, 1):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(b"\0" * size)

    def free(self) -> None:
        """Release the used space."""
        (self.path / "filler").unlink()


@contextmanager
def small_disk(mib: int) -> Iterator[SmallDisk]:
    """Mount a tmpfs of this size for the block; skip the test if mounts are not permitted."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "disk"
        path.mkdir()
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", path], capture_output=True, text=True, check=False
        )
        if mounted.returncode:
            pytest.skip(f"this machine lets tests mount no file system: {mounted.stderr.strip()}")
        try:
            yield SmallDisk(path)
        finally:
            subprocess.run(["umount", "-l", path], check=True)
