"""One process at a time prepares the database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection

_KEY = 0x5357_4954_4348
"""Of an advisory lock; any number that no other program on the database uses."""


@contextmanager
def alone() -> Iterator[None]:
    """Keep other processes out of this block until it ends; on SQLite the lock of the state directory does so."""
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
