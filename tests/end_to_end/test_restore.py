"""Backup and restore on an empty machine keep policies, keys, and audit, and no snapshot version goes back."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from bench.live.live_fleet import wait_for
from bench.live.loopback_ports import free_ports
from controlplane.publication.continued_versions import VERB
from tests.controlplane.simulated_engine import SimulatedEngine
from tests.hard_edges.gateway_fleet import version_of
from tests.hard_edges.test_grown import Grown
from tests.patience import PATIENCE_S, wait_until
from tests.private_postgresql import own_database, postgresql
from tests.private_redis import private_redis
from tests.program import ROOT, end

pytestmark = [pytest.mark.processes, pytest.mark.long]

MODEL = "org/Chat-8B"
KEPT = {
    "policies": "SELECT id, number, routing_document, published_at FROM controlplane_policyversion ORDER BY id",
    "live": "SELECT slug, live_version_id FROM controlplane_policy ORDER BY slug",
    "keys": "SELECT key_id, sha256, scopes, revoked_at FROM controlplane_apikey ORDER BY key_id",
    "audit": "SELECT at, actor_name, verb, object_id FROM controlplane_auditevent ORDER BY id",
    "engines": "SELECT engine_id, url FROM controlplane_engine ORDER BY engine_id",
}
PUBLISH = """
from controlplane.models import Policy
from controlplane.platform.actor import program
from controlplane.policies.publish import draft, publish_version
policy = Policy.objects.get()
document = {"schema_version": 1, "placement": {"name": "round_robin"}}
publish_version(draft(policy, document, actor=program("tests")), instead_of=1, actor=program("tests"))
"""


@pytest.fixture(scope="module")
def engine() -> Iterator[SimulatedEngine]:
    """Run an engine that outlives every machine of Headway."""
    running = SimulatedEngine(model=MODEL, block_tokens=32)
    running.start()
    try:
        yield running
    finally:
        running.stop()


def decided(url: str, key: str) -> tuple[int, int]:
    """Request a decision; return its status and policy version (0: none)."""
    body = json.dumps({"model": MODEL, "token_ids": [1, 2, 3]}).encode()
    request = urllib.request.Request(f"{url}/api/v1/route", body, {"Authorization": f"Bearer {key}"})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.status, json.load(answer)["policy_version"]
    except urllib.error.HTTPError as error:
        return error.code, 0


class Machine:
    """One machine with the embedded installation, SQLite included."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.port = free_ports(1)[0]
        self.url = f"http://127.0.0.1:{self.port}"
        self._environment = {**os.environ, "HEADWAY_STATE_DIR": str(state)}

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run `manage.py up` for the block."""
        command = [sys.executable, "manage.py", "up", "--port", str(self.port)]
        process = subprocess.Popen(
            command, cwd=ROOT, env=self._environment, stdout=subprocess.DEVNULL, start_new_session=True
        )
        try:
            wait_for(f"{self.url}/live")
            yield
        finally:
            end(process)

    def manage(self, *command: str) -> str:
        """Run a command of the installation and return its output."""
        done = subprocess.run(
            [sys.executable, "manage.py", *command],
            cwd=ROOT,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def new_key(self, name: str) -> str:
        """Create an API key and return it once the gateway accepts it."""
        key = self.manage("create_api_key", "--name", name, "--scopes", "route").split()[0]
        wait_until(lambda: decided(self.url, key)[0] == 200)
        return key

    def restore(self, backup: Path) -> None:
        """Copy a backup as docs/production.md describes."""
        self.state.mkdir(exist_ok=True)
        for file in backup.iterdir():
            shutil.copy2(file, self.state)


def stored(database: Path) -> dict[str, list[Any]]:
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        return {name: connection.execute(query).fetchall() for name, query in KEPT.items()}


@pytest.mark.thorough
def test_sqlite_is_restored_on_an_empty_machine_and_on_the_old_one(engine: SimulatedEngine, tmp_path: Path) -> None:
    old, new, backup = Machine(tmp_path / "old"), Machine(tmp_path / "new"), tmp_path / "backup"
    with old.running():
        key = re.search(r"\(shown once\): (\S+)", old.manage("connect", engine.url, "--port", str(old.port)))
        assert key is not None
        old.manage("shell", "--no-imports", "-c", PUBLISH)
        wait_until(lambda: decided(old.url, key[1]) == (200, 2))
        old.manage("backup", str(backup))
        later = [old.new_key(f"later {number}") for number in range(3)]
        seen = version_of(old.url)

    new.restore(backup)
    with new.running():
        wait_until(lambda: decided(new.url, key[1]) == (200, 2))
        assert decided(new.url, later[0])[0] == 401
        _same(stored(new.state / "headway.sqlite3"), stored(backup / "headway.sqlite3"))

    for file in old.state.glob("headway.sqlite3*"):
        file.unlink()
    old.restore(backup)
    with old.running():
        wait_until(lambda: decided(old.url, key[1]) == (200, 2))
        assert version_of(old.url) > seen
        assert decided(old.url, later[0])[0] == 401
        changed = old.new_key("after the restore")
        assert changed
    back = stored(old.state / "headway.sqlite3")
    _same(back, stored(backup / "headway.sqlite3"))
    assert [verb for _, _, verb, _ in back["audit"]].count(VERB) == 1


def _same(restored: dict[str, list[Any]], kept: dict[str, list[Any]]) -> None:
    """Assert that everything in the backup exists in the same order; later rows may exist too."""
    for name, rows in kept.items():
        assert rows, name
        assert [row for row in restored[name] if row in rows] == rows, name


@pytest.mark.thorough
def test_postgresql_is_restored_and_gateways_follow_no_older_version(engine: SimulatedEngine, tmp_path: Path) -> None:
    web_port, new_port, gateway_port, other_port = free_ports(4)
    with postgresql() as server, own_database(server) as database, private_redis(tmp_path) as redis:
        grown = Grown(database, redis.url, tmp_path / "grown")
        (tmp_path / "grown").mkdir()
        machine = Grown(f"{database}_restored", redis.url, tmp_path / "new")
        (tmp_path / "new").mkdir()
        gateway, other = (f"http://127.0.0.1:{port}" for port in (gateway_port, other_port))
        try:
            grown.start_web("web", web_port)
            grown.start("worker", "manage.py", "worker")
            grown.start("gateway", *_gateway(grown, "gateway", gateway_port))
            stopped = grown.start("other", *_gateway(grown, "other", other_port))
            shown = grown.manage("connect", engine.url, "--port", str(web_port))
            key = re.search(r"\(shown once\): (\S+)", shown)
            assert key is not None
            grown.manage("shell", "--no-imports", "-c", PUBLISH)
            for url in (gateway, other):
                wait_until(lambda url=url: decided(url, key[1]) == (200, 2))  # type: ignore[misc]
            subprocess.run(["pg_dump", "--format=custom", f"--file={tmp_path / 'dump'}", database], check=True)
            kept = {name: grown.rows(query) for name, query in KEPT.items()}
            later = grown.manage("create_api_key", "--name", "later", "--scopes", "route").split()[0]
            wait_until(lambda: decided(gateway, later)[0] == decided(other, later)[0] == 200)
            seen = version_of(gateway)

            # The database, Redis and every process but one gateway are lost; one gateway starts again from its disk.
            for process in [*grown.running("up"), *grown.running("worker"), stopped]:
                end(process)
            redis.kill()
            redis.start()
            with psycopg.connect(server, autocommit=True) as connection:
                connection.execute(f'CREATE DATABASE "{database.rpartition("/")[2]}_restored"')  # type: ignore[call-overload]
            subprocess.run(["pg_restore", f"--dbname={database}_restored", tmp_path / "dump"], check=True)
            grown.start("other", *_gateway(grown, "other", other_port))
            wait_for(f"{other}/live")
            assert version_of(other) >= seen

            machine.start_web("web", new_port)
            machine.start("worker", "manage.py", "worker")
            versions = [seen]

            def both_follow() -> bool:
                versions.append(version_of(gateway))
                return min(versions[-1], version_of(other)) > seen

            wait_until(both_follow)
            assert versions == sorted(versions)
            for url in (gateway, other):
                wait_until(lambda url=url: decided(url, key[1]) == (200, 2))  # type: ignore[misc]
                wait_until(lambda url=url: decided(url, later)[0] == 401)  # type: ignore[misc]
            restored = {name: machine.rows(query) for name, query in KEPT.items()}
            _same(restored, kept)
            assert VERB in {verb for _, _, verb, _ in restored["audit"]}
        finally:
            machine.close()
            grown.close()
            with psycopg.connect(server, autocommit=True) as connection:
                connection.execute(f'DROP DATABASE IF EXISTS "{database.rpartition("/")[2]}_restored" WITH (FORCE)')  # type: ignore[call-overload]


def _gateway(grown: Grown, name: str, port: int) -> list[str]:
    return ["-m", "gateway", "--port", str(port), "--state-dir", str(grown.state(name))]
