"""Databases of a pre-release version: no migration leads from them to this version, so they are rejected."""

from __future__ import annotations

from django.core.management.base import CommandError
from django.db import DatabaseError, connection
from django.db.migrations.recorder import MigrationRecorder

_NEWEST_TABLE = "controlplane_mergedbatches"
"""The table added last to the initial migration; a database without it was made by an earlier state of that migration.
"""


class PreReleaseDatabaseError(CommandError):
    """The database was created by a pre-release version; the message says what to do."""


def remedy() -> str:
    """Return the remedy for a database of a pre-release version; empty for others, and where none answers."""
    try:
        applied = {name for app, name in MigrationRecorder(connection).applied_migrations() if app == "controlplane"}
        tables = connection.introspection.table_names()
    except DatabaseError:
        return ""
    if not applied or ("0001_initial" in applied and _NEWEST_TABLE in tables):
        return ""
    name = connection.settings_dict["NAME"]
    if connection.vendor == "sqlite":
        return f"Move {name} away, with {name}-wal and {name}-shm where they exist, and start again."
    return f"Drop the database {name} or rename it, create it empty, and start again."


def reject() -> None:
    """Raise PreReleaseDatabaseError for such a database."""
    if advice := remedy():
        raise PreReleaseDatabaseError(f"A pre-release version of Headway created the database. {advice}")
