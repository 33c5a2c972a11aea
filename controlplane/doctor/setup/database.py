"""Does the database answer, and in the mode this program needs?"""

from __future__ import annotations

from django.db import DatabaseError, connection

from controlplane.doctor.finding import Finding, ok, problem
from controlplane.doctor.installation import Installation

_TIMEOUT = "Check that the server runs, and that DATABASE_URL has the right host, user and password."


def look(_installation: Installation) -> list[Finding]:
    """Ask it one question; for SQLite, also for its journal mode."""
    vendor = connection.vendor
    try:
        with connection.cursor() as cursor:
            if vendor != "sqlite":
                cursor.execute("SELECT version()")
                return [ok(f"The database answers: {str(cursor.fetchone()[0]).split(',')[0]}.")]
            cursor.execute("PRAGMA journal_mode")
            mode = str(cursor.fetchone()[0])
    except DatabaseError as error:
        # Only its type: the message may quote the address with its password.
        return [problem(f"The database ({vendor}) does not answer: {type(error).__name__}.", _TIMEOUT)]
    if mode != "wal":
        return [
            problem(
                f"SQLite's journal mode is {mode}, not WAL: readers and writers block each other.",
                "Put the state directory on a local file system; network file systems do not support WAL.",
            )
        ]
    return [ok("SQLite answers, in WAL mode.")]
