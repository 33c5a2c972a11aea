"""A child's output in a file of bounded size."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

MAX_BYTES = 2_000_000


class ChildLog:
    """One log file and its predecessor `.1`; a child appends to it through a descriptor of its own."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def open(self) -> int:
        """Return a descriptor that appends; the caller closes it."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self.trim()
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def trim(self) -> None:
        """Move the content to the predecessor once it is over MAX_BYTES.

        The file is copied and emptied, not renamed, because the child goes on writing to it; lines
        that it writes in between are lost.
        """
        try:
            if self._path.stat().st_size <= MAX_BYTES:
                return
        except FileNotFoundError:
            return
        shutil.copyfile(self._path, self._path.with_name(self._path.name + ".1"))
        os.truncate(self._path, 0)
