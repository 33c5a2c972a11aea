"""`manage.py backup FOLDER`: copies an SQLite installation for another machine."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection
from typing_extensions import override

from controlplane.project.first_run.secrets import FILE_NAME as SECRETS

DATABASE = "headway.sqlite3"


class Command(BaseCommand):
    """Copies a consistent state of the database, and the generated secrets. The program may be running."""

    help = "Copy the SQLite database and the generated secrets into a new folder (PostgreSQL: pg_dump)."

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the folder argument."""
        parser.add_argument("folder", type=Path, help="folder to create; copy its files into an empty state directory")

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        """Write the files, readable only by their owner."""
        if connection.vendor != "sqlite":
            raise CommandError("The database is PostgreSQL: back it up with pg_dump (docs/production.md).")
        folder: Path = options["folder"]
        os.umask(0o077)
        try:
            folder.mkdir(parents=True)
        except OSError as error:
            raise CommandError(f"{folder} cannot be created: {error.strerror}. Name a new folder.") from error
        connection.ensure_connection()
        with closing(sqlite3.connect(folder / DATABASE)) as copy:
            # SQLite's own copy: one moment, the write-ahead log included, while the program goes on writing.
            connection.connection.backup(copy)
        if (settings.STATE_DIR / SECRETS).exists():
            shutil.copy2(settings.STATE_DIR / SECRETS, folder / SECRETS)
        self.stdout.write(f"Copied to {folder}. It holds secrets: keep it where only administrators can read it.")
