"""The grown installation as processes: web, two workers and a gateway on PostgreSQL and Redis."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from bench.live_fleet import free_ports, wait_for
from tests.controlplane.actuators.http_exchange import http_server
from tests.hard_edges.gateway_fleet import metrics_of, version_of
from tests.private_postgresql import own_database, postgresql
from tests.private_redis import private_redis

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parents[2]
SECRET = "kJ3-d8fTq0_vW7xY2zAbCdEfGhIjKlMnOpQrStUv"


class Grown:
    """Starts processes of one installation and ends them all."""

    def __init__(self, database_url: str, redis_url: str, directory: Path) -> None:
        self._database_url = database_url
        self._directory = directory
        self._environment = {
            **os.environ,
            "DATABASE_URL": database_url,
            "REDIS_URL": redis_url,
            "SECRET_KEY": SECRET,
            "SWITCHYARD_FLEET_SECRET": SECRET[::-1],
            "SWITCHYARD_WEBHOOK_SECRET": SECRET,
        }
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        """Start one process with a state directory and a log of its own."""
        environment = {**self._environment, "SWITCHYARD_STATE_DIR": str(self._directory / name)}
        with (self._directory / f"{name}.log").open("ab") as log:
            process = subprocess.Popen([sys.executable, *command], cwd=ROOT, env=environment, stdout=log, stderr=log)
        self._running.append(process)
        return process

    def manage(self, *command: str) -> str:
        """Run one command of the web's installation and return what it prints."""
        environment = {**self._environment, "SWITCHYARD_STATE_DIR": str(self._directory / "web")}
        done = subprocess.run(
            [sys.executable, "manage.py", *command],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    def probe_lease(self) -> tuple[Any, ...]:
        """Return fencing token, whether the lease is alive, and its owner."""
        with psycopg.connect(self._database_url) as connection:
            row = connection.execute(
                "SELECT fencing_token, lease_until > now(), lease_owner FROM controlplane_jobrun"
                " WHERE job = 'probe' ORDER BY id DESC LIMIT 1"
            ).fetchone()
        return row or (0, False, "")

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return what a query of the installation's database finds."""
        with psycopg.connect(self._database_url) as connection:
            return connection.execute(query).fetchall()  # type: ignore[arg-type]

    def kill_order_worker(self) -> bool:
        """Kill the worker that carries orders out at this moment; False where none does."""
        for (owner,) in self.rows("SELECT lease_owner FROM controlplane_jobrun WHERE job = 'engine_orders'"):
            holder = next((each for each in self._running if f":{each.pid}:" in owner), None)
            if holder is not None and holder.poll() is None:
                holder.kill()
                return True
        return False

    def close(self) -> None:
        """End all processes."""
        for process in self._running:
            process.kill()
            process.wait()


def until(holds: Callable[[], bool], limit_s: float = 30.0) -> float:
    start = time.monotonic()
    while not holds():
        assert time.monotonic() - start < limit_s, "it did not come about"
        time.sleep(0.05)
    return time.monotonic() - start


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grown]:
    directory = tmp_path_factory.mktemp("grown")
    with postgresql(directory) as server, own_database(server) as database, private_redis(directory) as redis:
        installation = Grown(database, redis.url, directory)
        try:
            yield installation
        finally:
            installation.close()


def test_workers_take_over_and_gateways_hear_changes_of_other_processes(grown: Grown) -> None:
    web_port, gateway_port = free_ports(2)
    web = grown.start("web", "manage.py", "up", "--no-demo", "--port", str(web_port))
    wait_for(f"http://127.0.0.1:{web_port}/live", 60)
    workers = [grown.start(f"worker-{number}", "manage.py", "worker") for number in (1, 2)]
    until(lambda: grown.probe_lease()[1])
    token, _, owner = grown.probe_lease()
    holder = next(worker for worker in workers if f":{worker.pid}:" in owner)
    holder.kill()
    until(lambda: grown.probe_lease()[0] > token and grown.probe_lease()[1])
    assert f":{holder.pid}:" not in grown.probe_lease()[2]

    state_dir = grown._directory / "gateway"
    grown.start("gateway", "-m", "gateway", "--port", str(gateway_port), "--state-dir", str(state_dir))
    gateway = f"http://127.0.0.1:{gateway_port}"
    wait_for(f"{gateway}/live")
    before = version_of(gateway)
    assert before == version_of(f"http://127.0.0.1:{web_port}") > 0
    assert "switchyard_bus_connected 1.0" in metrics_of(f"http://127.0.0.1:{web_port}")
    assert grown.manage("create_api_key", "--name", "made elsewhere").startswith("sy_")
    until(lambda: version_of(gateway) > before)

    # The console's process goes; the gateway serves on what it knows.
    web.kill()
    web.wait()
    assert version_of(gateway) > before
    wait_for(f"{gateway}/live")


ASK_FOR_TWO = """
from datetime import timedelta
from django.utils import timezone
from controlplane.models import Policy, Region
from controlplane.services.actor import program
from controlplane.services.steering import take_over
from controlplane.services.topology import create_pool
hook = {"actuator": "webhook", "actuator_settings": {"url": "URL"}}
tests = program("tests")
pool = create_pool("hooked", "H", Region.objects.get(), "m", Policy.objects.get(), actor=tests, **hook)
take_over(pool, until=timezone.now() + timedelta(hours=1), engines=2, actor=tests)
"""


@pytest.mark.thorough
def test_an_order_whose_worker_is_killed_in_the_middle_has_one_effect(grown: Grown) -> None:
    grown.start("worker-3", "manage.py", "worker")
    keys: list[str] = []
    killed: list[bool] = []

    def answer(_method: str, _path: str, headers: dict[str, str], _body: bytes) -> tuple[int, bytes]:
        keys.append(headers["idempotency-key"])
        if not killed:
            killed.append(grown.kill_order_worker())
        number = list(dict.fromkeys(keys)).index(keys[-1])
        engine = {"name": f"gpu-{number}", "url": f"http://127.0.0.1:{number + 1}"}
        return 200, json.dumps({"engine": engine}).encode()

    with http_server(answer) as (url, _asked):
        grown.manage("shell", "-c", ASK_FOR_TWO.replace("URL", url))
        until(lambda: len(grown.rows("SELECT id FROM controlplane_engine WHERE name LIKE 'gpu-%'")) == 2)
        orders = [key for (key,) in grown.rows("SELECT key FROM controlplane_engineorder")]
    assert killed == [True]
    assert keys.count(keys[0]) >= 2
    assert sorted(orders) == sorted(set(keys))
    assert len(orders) == 2


def test_a_worker_without_redis_says_where_jobs_run(tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "SWITCHYARD_STATE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "manage.py", "worker"], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "manage.py up" in done.stderr
