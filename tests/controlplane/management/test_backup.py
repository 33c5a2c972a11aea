"""The backup command during writes to the database."""

from __future__ import annotations

import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection

from controlplane.management.commands.backup import DATABASE
from controlplane.platform.models.tenant import Tenant
from controlplane.project.first_run.secrets import secrets_of

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(
        "sqlite3" not in settings.DATABASES["default"]["ENGINE"], reason="on PostgreSQL pg_dump does it"
    ),
]


def test_backup_holds_committed_data_and_secrets_readable_only_by_the_owner(tmp_path: Path) -> None:
    Tenant.objects.create(slug="kept", name="Kept")
    secrets = secrets_of(settings.STATE_DIR)
    call_command("backup", tmp_path / "made" / "today")
    Tenant.objects.create(slug="later", name="Later")
    folder = tmp_path / "made" / "today"
    with closing(sqlite3.connect(folder / DATABASE)) as copy:
        assert copy.execute("SELECT slug FROM controlplane_tenant").fetchall() == [("kept",)]
    assert secrets_of(folder) == secrets
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_backup_overwrites_no_earlier_one(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="Name a new folder"):
        call_command("backup", tmp_path)


def test_on_postgresql_the_command_names_pg_dump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "vendor", "postgresql")
    with pytest.raises(CommandError, match="pg_dump"):
        call_command("backup", tmp_path / "new")
