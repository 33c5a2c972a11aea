"""Ensures one server process per state directory, because the bus and broker may be in its memory."""

from __future__ import annotations

import fcntl
import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from django.db import connection

FILE_NAME = "server.lock"


class StateInUseError(RuntimeError):
    """Another process serves from this state directory."""

    def __init__(self, state_dir: Path, pid: str) -> None:
        self.pid = pid
        super().__init__(
            f"Headway is already running on {state_dir} (pid {pid or 'unknown'}). Stop it first, or set "
            "HEADWAY_STATE_DIR to another directory."
        )


@functools.cache
def hold_state(state_dir: Path) -> IO[str]:
    """Lock the directory until this process ends. Raises StateInUseError if another process holds the lock.

    The kernel releases the lock with the process, even after `kill -9`. A second call in the same process returns the
    same locked file.
    """
    state_dir.mkdir(parents=True, exist_ok=True)
    # Append mode truncates nothing: another process may hold the file, with its pid in it.
    file = (state_dir / FILE_NAME).open("a+", encoding="ascii")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.seek(0)
        holder = file.read(32).strip()
        file.close()
        raise StateInUseError(state_dir, holder) from error
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()
    return file


def holder(state_dir: Path) -> str | None:
    """Return the pid of the process that holds the lock of the directory; None: no process."""
    try:
        with (state_dir / FILE_NAME).open("r", encoding="ascii") as file:
            try:
                # Shared, so that two askers do not take each other for the holder.
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return file.read(32).strip() or "unknown"
    except OSError:
        return None
    return None


_KEY = 0x5357_4954_4348
"""Id of an advisory lock. No other program may use the same number in this database."""


@contextmanager
def alone() -> Iterator[None]:
    """Run the block in one process at a time. On SQLite, the lock of the state directory ensures this."""
    if connection.vendor != "postgresql":
        yield
        return
    with connection.cursor() as cursor:
        # Another process may migrate for minutes; this wait is no sign of a fault.
        cursor.execute("SET lock_timeout = 0; SET statement_timeout = 0")
        cursor.execute("SELECT pg_advisory_lock(%s)", [_KEY])
        cursor.execute("RESET lock_timeout; RESET statement_timeout")
        try:
            yield
        finally:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [_KEY])
