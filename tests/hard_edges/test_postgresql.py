"""The database tests on PostgreSQL: models, services and jobs, run again in a process of their own.

SWITCHYARD_TEST_DATABASE_URL names a server; without it the one on 127.0.0.1:5432 is taken, or a private one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from tests.private_postgresql import postgresql

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("models", "services", "jobs")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgresql() as url:
        yield url


def database(server: str, name: str) -> str:
    """Return the URL of one database of the server."""
    return urlunsplit(urlsplit(server)._replace(path=f"/{name}"))


def run(server: str, state_dir: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "DATABASE_URL": database(server, f"switchyard_{os.getpid()}"),
        "SWITCHYARD_STATE_DIR": str(state_dir),
    }
    return subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=280
    )


def test_models_services_and_jobs_keep_their_promises(server: str, tmp_path: Path) -> None:
    folders = [f"tests/controlplane/{room}" for room in ROOMS]
    options = ["-q", "-p", "no:cacheprovider", "--create-db", "--basetemp", str(tmp_path / "tests")]
    # What never asks a database has been tested already, and wrong documents are wrong on every database.
    options += ["-m", "django_db", "--ignore", "tests/controlplane/services/test_policy_problems.py"]
    # A thread of a test may hold its connection until it is collected; the database is then dropped below.
    options += ["-W", "ignore:Error when trying to teardown test databases:pytest.PytestWarning"]
    try:
        result = run(server, tmp_path, "-m", "pytest", *options, *folders)
    finally:
        with psycopg.connect(server, autocommit=True) as connection:
            name = f"test_switchyard_{os.getpid()}"
            connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')  # type: ignore[call-overload]
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
    passed = int(result.stdout.rsplit(" passed", 1)[0].split()[-1])
    assert passed >= 100


def test_every_migration_applies_and_the_program_asks_for_no_more(server: str, tmp_path: Path) -> None:
    name = f"switchyard_{os.getpid()}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')  # type: ignore[call-overload]
        try:
            for command in ("migrate", "check", "migrate --check"):
                result = run(server, tmp_path, "manage.py", *command.split())
                assert result.returncode == 0, result.stderr[-3000:]
        finally:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')  # type: ignore[call-overload]
