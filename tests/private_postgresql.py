"""A PostgreSQL server for tests: the configured one, a running one, or a private one."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from bench.live.loopback_ports import free_port

VARIABLE = "HEADWAY_TEST_DATABASE_URL"
_LOCAL = "postgres://postgres@127.0.0.1:5432/postgres"
_BINARIES = "/usr/lib/postgresql/*/bin"


@contextmanager
def postgresql() -> Iterator[str]:
    """Return the URL of a server on which tests may create and drop databases.

    Skip if there is neither a server nor its programs, or fail under CI=true.
    """
    given = os.environ.get(VARIABLE, "")
    if given or _answers(_LOCAL):
        yield given or _LOCAL
        return
    with private_postgresql() as server:
        yield server.url


@contextmanager
def own_database(server: str, options: str = "") -> Iterator[str]:
    """Create a database for the block, return its URL, and drop it afterwards."""
    name = f"headway_grown_{os.getpid()}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}" {options}')
        try:
            yield urlunsplit(urlsplit(server)._replace(path=f"/{name}"))
        finally:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def _go_without() -> NoReturn:
    reason = f"there is no PostgreSQL: install it (Debian: apt-get install postgresql), or set {VARIABLE}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def _answers(url: str) -> bool:
    try:
        with psycopg.connect(url, connect_timeout=2):
            return True
    except psycopg.OperationalError:
        return False


def _programs() -> Path | None:
    initdb = shutil.which("initdb")
    if initdb:
        return Path(initdb).parent
    installed = sorted(Path("/").glob(_BINARIES.removeprefix("/")))
    return installed[-1] if installed else None


class PrivatePostgresql:
    """One server on a free loopback port; it never runs as root, which PostgreSQL rejects."""

    def __init__(self, programs: Path, data: Path) -> None:
        port = free_port()
        self.url = f"postgres://postgres@127.0.0.1:{port}/postgres"
        self._user = "postgres" if os.geteuid() == 0 else None
        if self._user is not None:
            os.chown(data, pwd.getpwnam(self._user).pw_uid, pwd.getpwnam(self._user).pw_gid)
        subprocess.run(
            [programs / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "--no-sync"],
            check=True, user=self._user, cwd="/", stdout=subprocess.DEVNULL,
        )  # fmt: skip
        where = ["-D", str(data), "-p", str(port), "-h", "127.0.0.1", "-k", ""]
        self._command = [str(programs / "postgres"), *where, "-F"]
        self._server: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server and return once it responds."""
        self._server = subprocess.Popen(self._command, user=self._user, cwd="/", stderr=subprocess.DEVNULL)
        for _ in range(600):
            if _answers(self.url):
                return
            with suppress(subprocess.TimeoutExpired):
                self._server.wait(0.05)

    def crash(self) -> None:
        """Kill the server with all its connections; it recovers at the next start."""
        if self._server is not None:
            self._server.send_signal(signal.SIGQUIT)
            self._server.wait()
            self._server = None


@contextmanager
def private_postgresql() -> Iterator[PrivatePostgresql]:
    """Run a server that a test may stop and start. Skip without its programs, or fail under CI=true."""
    programs = _programs()
    if programs is None:
        _go_without()
    # Not below pytest's own directory, which each run closes to the user that PostgreSQL runs as.
    with TemporaryDirectory(prefix="headway-postgresql-") as data:
        server = PrivatePostgresql(programs, Path(data))
        server.start()
        try:
            yield server
        finally:
            server.crash()
