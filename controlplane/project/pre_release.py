"""Detects and rejects databases of a pre-release version, from which no migration exists."""

from __future__ import annotations

from django.core.management.base import CommandError
from django.db import DatabaseError, connection
from django.db.migrations.recorder import MigrationRecorder

_NEWEST_TABLE = "controlplane_mergedbatches"
"""The newest table of the initial migration. Without it, the database was created by a pre-release version."""


class PreReleaseDatabaseError(CommandError):
    """The database was created by a pre-release version. The message explains the fix."""


def remedy() -> str:
    """Return the remedy for a pre-release database; empty for other databases, or if the database is unavailable."""
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
    """Raise PreReleaseDatabaseError for a pre-release database."""
    if advice := remedy():
        raise PreReleaseDatabaseError(f"A pre-release version of Headway created the database. {advice}")
