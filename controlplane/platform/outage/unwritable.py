"""Tracks whether the database is writable, and the cause if a recent write failed."""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum

from django.db import InterfaceError, InternalError, OperationalError, transaction

CANNOT_WRITE = (OperationalError, InternalError, InterfaceError)
"""Exceptions of a database that is full, read-only, busy, or unavailable."""
REMEMBERED_S = 90.0
"""A failure is reported for this time. Sessions try to write once a minute."""

logger = logging.getLogger(__name__)


class Cause(StrEnum):
    """Why a write failed."""

    FULL = "full"
    READ_ONLY = "read-only"
    BUSY = "busy"
    AWAY = "away"


_SAID = {
    "database or disk is full": Cause.FULL,
    "disk i/o error": Cause.FULL,
    "no space left on device": Cause.FULL,
    "readonly database": Cause.READ_ONLY,
    "read-only transaction": Cause.READ_ONLY,
    "database is locked": Cause.BUSY,
    "lock timeout": Cause.BUSY,
}
"""Fragments of error messages of SQLite and PostgreSQL, with their causes."""


def cause_of(error: BaseException) -> Cause | None:
    """Return the cause of the failure; None for a cause that neither waiting nor an operator can fix."""
    said = str(error).lower()
    if not isinstance(error, CANNOT_WRITE) or said.startswith("no such "):
        # SQLite uses the same class for a missing table or column.
        return None
    cause = next((known for part, known in _SAID.items() if part in said), Cause.AWAY)
    # psycopg's InternalError is a read-only server, or a transaction that our code uses after its failure.
    return None if isinstance(error, InternalError) and cause == Cause.AWAY else cause


class DatabaseWrites:
    """Tracks whether this process can write the database.

    Thread-safe. Mutable state: the last failure until a success.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._failed: tuple[float, Cause] | None = None

    @property
    def failing(self) -> Cause | None:
        """Return the cause of the last failed write; None after a success or a long time."""
        failed = self._failed
        return failed[1] if failed is not None and self._clock() - failed[0] < REMEMBERED_S else None

    def failed(self, error: BaseException) -> None:
        """Record a failure."""
        cause = cause_of(error)
        if cause is None:
            return
        with self._lock:
            first = self.failing is None
            self._failed = (self._clock(), cause)
        if first:
            logger.warning("the database cannot be written", extra={"cause": cause.value})

    def succeeded(self) -> None:
        """Record a success."""
        self._failed = None

    @contextmanager
    def attempted(self) -> Iterator[None]:
        """Run the block in a transaction. If the database cannot be written, roll back and continue after the block."""
        try:
            with transaction.atomic():
                yield
        except CANNOT_WRITE as error:
            if cause_of(error) is None:
                raise
            self.failed(error)
        else:
            self.succeeded()


@functools.cache
def database_writes() -> DatabaseWrites:
    """Return this process's DatabaseWrites."""
    return DatabaseWrites()
