"""The database tests on PostgreSQL: models, services, and jobs, repeated in a separate process.

HEADWAY_TEST_DATABASE_URL names a server. The default is the one on 127.0.0.1:5432, or else a private one.
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

from tests.patience import PATIENCE_S
from tests.private_postgresql import own_database, postgresql
from tests.program import run_to_end
from web.access.login_throttle import MAX_PER_NAME, MAX_PER_NAME_AND_ADDRESS

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parents[2]
FEATURES = (
    "policies", "request_log", "access", "history", "kv_nodes", "platform", "fleet", "automation", "trials",
    "incidents", "usage",
)  # fmt: skip
SUITE_LIMIT_S = 1200
"""Limit of one test, which runs a whole suite; the tests of the suite have limits of their own."""


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
        "DATABASE_URL": database(server, f"headway_{os.getpid()}"),
        "HEADWAY_STATE_DIR": str(state_dir),
    }
    return run_to_end(command, environment, SUITE_LIMIT_S)


@pytest.mark.thorough
@pytest.mark.parametrize("feature", FEATURES)
def test_database_tests_of_a_feature_pass_on_postgresql(server: str, tmp_path: Path, feature: str) -> None:
    folder = f"tests/controlplane/{feature}"
    options = ["-q", "-p", "no:cacheprovider", "--create-db", "--basetemp", str(tmp_path / "tests")]
    # Only database tests: the others do not depend on the database, and neither does parsing a request.
    options += ["-m", "django_db", "--ignore", f"{folder}/api", "--ignore", f"{folder}/document"]
    # A test's thread may keep its connection until garbage collection; the database is then dropped below.
    options += ["-W", "ignore:Error when trying to teardown test databases:pytest.PytestWarning"]
    try:
        result = run(server, tmp_path, "-m", "pytest", *options, folder)
    finally:
        with psycopg.connect(server, autocommit=True) as connection:
            name = f"test_headway_{os.getpid()}"
            connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')  # type: ignore[call-overload]
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
    assert " passed" in result.stdout


def test_all_migrations_apply_and_none_is_missing(server: str, tmp_path: Path) -> None:
    name = f"headway_{os.getpid()}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')  # type: ignore[call-overload]
        try:
            for command in ("migrate", "check", "migrate --check"):
                result = run(server, tmp_path, "manage.py", *command.split())
                assert result.returncode == 0, result.stderr[-3000:]
        finally:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')  # type: ignore[call-overload]


GUESSES = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
import django; django.setup()
from django.db import connection
from web.access.login_throttle import LoginThrottle
throttle, ready = LoginThrottle(lambda: 1e9), threading.Barrier(10)

def guess(number):
    connection.ensure_connection()
    ready.wait()
    waits = throttle.attempt("here", "10.0.0.1"), throttle.attempt("everywhere", f"10.1.{sys.argv[1]}.{number}")
    for turn in range(12):
        # Wrong guesses and a person who knows the password, at the same places.
        throttle.attempt(f"person{turn % 2}", f"10.2.0.{turn % 3}")
        throttle.succeeded(f"person{turn % 2}", f"10.2.0.{turn % 3}")
    connection.close()
    return [not wait_s for wait_s in waits]

print("ready", flush=True)
sys.stdin.readline()
with ThreadPoolExecutor(10) as pool:
    print(*map(sum, zip(*pool.map(guess, range(10)))))
"""


def test_login_throttle_counts_racing_guesses_of_three_processes_once(server: str, tmp_path: Path) -> None:
    with own_database(server) as url:
        environment = {
            **os.environ,
            "DATABASE_URL": url,
            "DJANGO_SETTINGS_MODULE": "controlplane.project.settings",
            "HEADWAY_STATE_DIR": str(tmp_path),
        }
        subprocess.run([sys.executable, "manage.py", "migrate", "-v", "0"], cwd=ROOT, env=environment, check=True)
        racing = [
            subprocess.Popen(
                [sys.executable, "-c", GUESSES, str(number)], cwd=ROOT, env=environment, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )
            for number in range(3)
        ]  # fmt: skip
        try:
            for process in racing:
                assert process.stdout is not None
                assert process.stdout.readline() == "ready\n"
            outputs = [process.communicate("go\n", timeout=PATIENCE_S) for process in racing]
        finally:
            for process in racing:
                process.kill()
    assert [errors for _, errors in outputs] == ["", "", ""]
    tried = [sum(column) for column in zip(*([int(part) for part in out.split()] for out, _ in outputs), strict=True)]
    assert tried == [MAX_PER_NAME_AND_ADDRESS, MAX_PER_NAME]
