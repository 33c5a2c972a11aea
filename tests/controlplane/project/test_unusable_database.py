"""A database of a pre-release version, or not in UTF-8, is rejected with a remedy before it is changed."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder

from controlplane.project import unusable_database
from controlplane.project.unusable_database import fault
from tests.private_postgresql import own_database, postgresql
from tests.program import run_to_end

LAST = "0019_engine_keys"
PORT = "18510"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "headway.sqlite3"
    with closing(sqlite3.connect(path)) as made, made:
        made.execute("CREATE TABLE django_migrations (id INTEGER PRIMARY KEY, app TEXT, name TEXT, applied TEXT)")
        made.execute("INSERT INTO django_migrations VALUES (1, 'controlplane', ?, '2026-11-20 00:00:00')", [LAST])
    return path


def run(state_dir: Path, *command: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], "HEADWAY_STATE_DIR": str(state_dir)}
    return run_to_end(command, env)


@pytest.mark.parametrize("command", [("migrate",), ("up", "--no-demo", "--port", PORT)], ids=["migrate", "up"])
def test_migrating_commands_name_the_file_to_move(database: Path, command: tuple[str, ...]) -> None:
    rejected = run(database.parent, "manage.py", *command)
    assert rejected.returncode == 1
    assert f"of Headway created the database. Move {database} away" in rejected.stderr
    assert "Traceback" not in rejected.stderr
    with closing(sqlite3.connect(database)) as made:
        assert made.execute("SELECT name FROM sqlite_master WHERE name LIKE 'controlplane%'").fetchall() == []
        assert made.execute("SELECT name FROM django_migrations").fetchall() == [(LAST,)]


def test_server_without_manage_py_does_not_start_on_a_pre_release_database(database: Path) -> None:
    rejected = run(database.parent, "-m", "uvicorn", "controlplane.project.asgi:application", "--port", PORT)
    assert rejected.returncode == 3
    assert f"Move {database} away" in rejected.stderr


@pytest.mark.django_db
def test_database_server_error_names_the_database_to_drop(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fault() is None
    recorder = MigrationRecorder(connection)
    recorder.record_applied("controlplane", "9999_from_the_future")
    assert fault() is None
    # An earlier state of the initial migration lacks its last table.
    tables = connection.introspection.table_names()
    monkeypatch.setattr(
        connection.introspection, "table_names", lambda *_: [*{*tables} - {"controlplane_mergedbatches"}]
    )
    assert fault() is not None
    monkeypatch.setattr(connection.introspection, "table_names", lambda *_: tables)
    assert fault() is None
    recorder.record_unapplied("controlplane", "0001_initial")
    monkeypatch.setattr(connection, "vendor", "postgresql")
    monkeypatch.setattr(unusable_database, "_encoding", lambda: "UTF8")
    monkeypatch.setitem(connection.settings_dict, "NAME", "fleet")
    wrong = fault()
    assert wrong is not None
    assert "Drop the database fleet" in wrong[1]


def test_migrations_reject_a_database_that_is_not_in_utf_8(tmp_path: Path) -> None:
    with postgresql() as server, own_database(server, "ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0") as url:
        env = {"PATH": os.environ["PATH"], "HEADWAY_STATE_DIR": str(tmp_path), "DATABASE_URL": url}
        rejected = run_to_end(("manage.py", "migrate"), env)
    assert rejected.returncode == 1
    assert "has the encoding SQL_ASCII" in rejected.stderr
    assert "ENCODING 'UTF8'" in rejected.stderr
