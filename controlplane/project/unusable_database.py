"""Detects and rejects databases that this program cannot use: of a pre-release version, or not in UTF-8."""

from __future__ import annotations

from django.core.management.base import CommandError
from django.db import DatabaseError, connection
from django.db.migrations.recorder import MigrationRecorder

_NEWEST_TABLE = "controlplane_mergedbatches"
"""The newest table of the initial migration. Without it, the database was created by a pre-release version."""


class UnusableDatabaseError(CommandError):
    """The database cannot be used. The message explains the fix."""


def fault() -> tuple[str, str] | None:
    """Return what is wrong with the database and the remedy; None if nothing is, or if the database is unavailable."""
    try:
        applied = {name for app, name in MigrationRecorder(connection).applied_migrations() if app == "controlplane"}
        tables = connection.introspection.table_names()
        encoding = _encoding()
    except DatabaseError:
        return None
    name = connection.settings_dict["NAME"]
    if encoding != "UTF8":
        remedy = f"Create it again: CREATE DATABASE {name} ENCODING 'UTF8' TEMPLATE template0."
        return f"The database has the encoding {encoding}, which cannot hold all texts.", remedy
    if not applied or ("0001_initial" in applied and _NEWEST_TABLE in tables):
        return None
    created = "A pre-release version of Headway created the database."
    if connection.vendor == "sqlite":
        return created, f"Move {name} away, with {name}-wal and {name}-shm where they exist, and start again."
    return created, f"Drop the database {name} or rename it, create it empty, and start again."


def _encoding() -> str:
    if connection.vendor != "postgresql":
        return "UTF8"
    with connection.cursor() as cursor:
        cursor.execute("SHOW server_encoding")
        return str(cursor.fetchone()[0])


def reject() -> None:
    """Raise UnusableDatabaseError for a database that cannot be used."""
    if wrong := fault():
        raise UnusableDatabaseError(" ".join(wrong))
