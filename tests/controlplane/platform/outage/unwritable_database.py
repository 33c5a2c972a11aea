"""A read-only database, for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import OperationalError, connection

from controlplane.platform.outage.unwritable import database_writes

FULL = "database or disk is full"
_CHANGES = ("INSERT", "UPDATE", "DELETE", "REPLACE")


@contextmanager
def unwritable(message: str = FULL, error: type[Exception] = OperationalError) -> Iterator[None]:
    """Make every write statement fail during the block."""

    def fail(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.lstrip().upper().startswith(_CHANGES):
            raise error(message)
        return execute(sql, params, many, context)

    try:
        with connection.execute_wrapper(fail):
            yield
    finally:
        database_writes().succeeded()
