"""A PostgreSQL server for tests: the one that is named, the one that runs here, or one of the test's own."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

VARIABLE = "SWITCHYARD_TEST_DATABASE_URL"
_LOCAL = "postgres://postgres@127.0.0.1:5432/postgres"
_BINARIES = "/usr/lib/postgresql/*/bin"


@contextmanager
def postgresql(directory: Path) -> Iterator[str]:
    """Return the URL of a server whose databases a test may create and drop.

    Skips where there is neither a server nor its programs; fails there under CI=true.
    """
    given = os.environ.get(VARIABLE, "")
    if given or _answers(_LOCAL):
        yield given or _LOCAL
        return
    programs = _programs()
    if programs is None:
        reason = f"there is no PostgreSQL: install it (Debian: apt-get install postgresql), or set {VARIABLE}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    with _own_server(programs, directory) as url:
        yield url


@contextmanager
def own_database(server: str) -> Iterator[str]:
    """Make a database for the block and drop it afterwards; returns its URL."""
    name = f"switchyard_grown_{os.getpid()}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')  # type: ignore[call-overload]
        try:
            yield urlunsplit(urlsplit(server)._replace(path=f"/{name}"))
        finally:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')  # type: ignore[call-overload]


def _answers(url: str) -> bool:
    try:
        with psycopg.connect(url, connect_timeout=2):
            return True
    except psycopg.OperationalError:
        return False


def _programs() -> Path | None:
    found = shutil.which("initdb")
    if found:
        return Path(found).parent
    installed = sorted(Path("/").glob(_BINARIES.removeprefix("/")))
    return installed[-1] if installed else None


@contextmanager
def _own_server(programs: Path, directory: Path) -> Iterator[str]:
    """Run a server on a free loopback port; it never runs as root, which PostgreSQL refuses."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    data = directory / "postgresql"
    user = None
    if os.geteuid() == 0:
        user = "postgres"
        owner = pwd.getpwnam(user)
        data.mkdir()
        os.chown(data, owner.pw_uid, owner.pw_gid)
        for parent in data.parents[:-1]:
            parent.chmod(parent.stat().st_mode | 0o011)
    subprocess.run(
        [programs / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "--no-sync"],
        check=True, user=user, cwd="/", stdout=subprocess.DEVNULL,
    )  # fmt: skip
    options = ["-D", data, "-p", str(port), "-h", "127.0.0.1", "-k", "", "-F"]
    server = subprocess.Popen([programs / "postgres", *options], user=user, cwd="/", stderr=subprocess.DEVNULL)
    try:
        url = f"postgres://postgres@127.0.0.1:{port}/postgres"
        for _ in range(200):
            if _answers(url):
                break
            with suppress(subprocess.TimeoutExpired):
                server.wait(0.05)
        yield url
    finally:
        server.terminate()
        server.wait()
