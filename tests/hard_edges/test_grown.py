"""An installation of separate processes: web, two workers, and a gateway on PostgreSQL and Redis."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from bench.live.live_fleet import MODEL, engine_command, wait_for
from bench.live.loopback_ports import free_ports
from gateway.bus.bus_metrics import WAKE_UP_AGE
from tests.controlplane.automation.actuators.http_exchange import http_server
from tests.hard_edges.gateway_fleet import metrics_of, version_of
from tests.patience import PATIENCE_S, wait_until
from tests.private_postgresql import own_database, postgresql
from tests.private_redis import private_redis

pytestmark = [pytest.mark.processes, pytest.mark.thorough]

ROOT = Path(__file__).resolve().parents[2]
SECRET = "kJ3-d8fTq0_vW7xY2zAbCdEfGhIjKlMnOpQrStUv"


class Grown:
    """Starts the processes of one installation and ends them all."""

    def __init__(self, database_url: str, redis_url: str, directory: Path) -> None:
        self._database_url = database_url
        self._directory = directory
        self._environment = {
            **os.environ,
            "DATABASE_URL": database_url,
            "REDIS_URL": redis_url,
            "SECRET_KEY": SECRET,
            "HEADWAY_FLEET_SECRET": SECRET[::-1],
            "HEADWAY_WEBHOOK_SECRET": SECRET,
        }
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        """Start one process with its own state directory and log."""
        environment = {**self._environment, "HEADWAY_STATE_DIR": str(self._directory / name)}
        with (self._directory / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *command], cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        self._running.append(process)
        return process

    def start_web(self, name: str, port: int) -> subprocess.Popen[bytes]:
        """Start a web process, which migrates an empty database, and return once it responds."""
        web = self.start(name, "manage.py", "up", "--port", str(port))
        wait_for(f"http://127.0.0.1:{port}/live")
        return web

    def state(self, name: str) -> Path:
        """Return the state directory of a process."""
        return self._directory / name

    def log(self, name: str) -> str:
        """Return the log of a process."""
        return (self._directory / f"{name}.log").read_text()

    def running(self, command: str) -> list[subprocess.Popen[bytes]]:
        """Return the processes of a command that have not ended."""
        return [item for item in self._running if command in item.args and item.poll() is None]  # type: ignore[operator]

    def manage(self, *command: str) -> str:
        """Run one command of the installation and return its output."""
        environment = {**self._environment, "HEADWAY_STATE_DIR": str(self._directory / "web")}
        done = subprocess.run(
            [sys.executable, "manage.py", *command],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def probe_lease(self) -> tuple[Any, ...]:
        """Return the probe lease's fencing token, whether the lease is valid, and its owner."""
        with psycopg.connect(self._database_url) as connection:
            row = connection.execute(
                "SELECT fencing_token, lease_until > now(), lease_owner FROM controlplane_jobrun"
                " WHERE job = 'probe' ORDER BY id DESC LIMIT 1"
            ).fetchone()
        return row or (0, False, "")

    def rows(self, query: str, *values: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query of the installation's database."""
        with psycopg.connect(self._database_url) as connection:
            return connection.execute(query, values).fetchall()  # type: ignore[arg-type]

    def close(self) -> None:
        """End all processes."""
        for process in self._running:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grown]:
    directory = tmp_path_factory.mktemp("grown")
    with postgresql() as server, own_database(server) as database, private_redis(directory) as redis:
        installation = Grown(database, redis.url, directory)
        try:
            yield installation
        finally:
            installation.close()


def test_workers_take_over_and_gateways_receive_changes_of_other_processes(grown: Grown) -> None:
    web_port, other_port, gateway_port = free_ports(3)
    # Both start on an empty database and migrate it, one after the other.
    web = grown.start("web", "manage.py", "up", "--port", str(web_port))
    other = grown.start("web-other", "manage.py", "up", "--port", str(other_port))
    for port in (web_port, other_port):
        wait_for(f"http://127.0.0.1:{port}/live")
    other.kill()
    workers = [grown.start(f"worker-{number}", "manage.py", "worker") for number in (1, 2)]
    wait_until(lambda: grown.probe_lease()[1])
    token, _, owner = grown.probe_lease()
    holder = next(worker for worker in workers if f":{worker.pid}:" in owner)
    holder.kill()
    wait_until(lambda: grown.probe_lease()[0] > token and grown.probe_lease()[1])
    assert f":{holder.pid}:" not in grown.probe_lease()[2]

    state_dir = str(grown.state("gateway"))
    grown.start("gateway", "-m", "gateway", "--port", str(gateway_port), "--state-dir", state_dir)
    gateway = f"http://127.0.0.1:{gateway_port}"
    wait_for(f"{gateway}/live")
    before = version_of(gateway)
    assert before == version_of(f"http://127.0.0.1:{web_port}") > 0
    assert "headway_bus_connected 1.0" in metrics_of(f"http://127.0.0.1:{web_port}")
    assert grown.manage("create_api_key", "--name", "made elsewhere").startswith("hw_")
    wait_until(lambda: version_of(gateway) > before)

    # The web process is killed; the gateway serves from its last snapshot.
    web.kill()
    web.wait()
    assert version_of(gateway) > before
    wait_for(f"{gateway}/live")


SERVE = """
from django.db import transaction
from controlplane.models import Engine, Policy, Pool, Region
from controlplane.platform.snapshot_change import record_change
with transaction.atomic():
    pool = Pool.objects.create(slug="served", name="Served", region=Region.objects.get(), served_model="MODEL",
        policy=Policy.objects.get())
    Engine.objects.create(engine_id="e", name="e", pool=pool, url="URL", connect_url="URL")
    record_change()
"""


def decide(gateway: str, key: str) -> int:
    """Request a decision and return the status of the response."""
    body = json.dumps({"model": MODEL, "token_ids": [1, 2, 3]}).encode()
    request = urllib.request.Request(f"{gateway}/api/v1/route", body, {"Authorization": f"Bearer {key}"})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_no_decision_fails_while_the_web_process_is_killed(grown: Grown) -> None:
    web_port, gateway_port, *engine_ports = free_ports(5)
    engine = subprocess.Popen(engine_command(engine_ports, ["--time-scale", "20"]), cwd=ROOT)
    try:
        web = grown.start_web("web-2", web_port)
        grown.start("worker-2", "manage.py", "worker")
        wait_for(f"http://127.0.0.1:{engine_ports[0]}/health")
        key = grown.manage("create_api_key", "--name", "load", "--scopes", "infer", "route").strip()
        grown.manage("shell", "-c", SERVE.replace("URL", f"http://127.0.0.1:{engine_ports[0]}").replace("MODEL", MODEL))
        gateway = f"http://127.0.0.1:{gateway_port}"
        state_dir = str(grown.state("gateway-2"))
        grown.start("gateway-2", "-m", "gateway", "--port", str(gateway_port), "--state-dir", state_dir)
        wait_for(f"{gateway}/ready")
        wait_until(lambda: decide(gateway, key) == 200)
        statuses = [decide(gateway, key) for _ in range(50)]
        web.kill()
        statuses += [decide(gateway, key) for _ in range(300)]
        web.wait()
        assert set(statuses) == {200}
    finally:
        engine.kill()
        engine.wait()


def test_second_beat_takes_over_when_the_first_is_killed(grown: Grown) -> None:
    (web_port,) = free_ports(1)
    grown.start_web("web-3", web_port)
    url = f"http://127.0.0.1:{web_port}"

    def age_s() -> float:
        match = re.search(rf"^{WAKE_UP_AGE} (\S+)$", metrics_of(url), re.MULTILINE)
        assert match is not None
        return float(match[1])

    def woken_after_this_call() -> Callable[[], bool]:
        """Return a condition: a job was woken over five seconds after this call, so not by an earlier message."""
        from_s = time.monotonic()
        return lambda: time.monotonic() - from_s - age_s() > 5.0

    for process in grown.running("worker"):
        process.kill()
        process.wait()
    # Without workers, the age grows.
    wait_until(lambda: age_s() > 5.0)
    grown.start("jobs", "manage.py", "worker", "--only", "jobs")
    first, second = (grown.start(f"beat-{number}", "manage.py", "worker", "--only", "beat") for number in (1, 2))
    wait_until(lambda: all("is running" in grown.log(f"beat-{number}") for number in (1, 2)))
    first.kill()
    first.wait()
    wait_until(woken_after_this_call())
    second.kill()
    second.wait()
    wait_until(lambda: age_s() > 5.0)


ASK_FOR_TWO = """
from datetime import timedelta
from django.utils import timezone
from controlplane.models import Policy, Region
from controlplane.platform.actor import program
from controlplane.automation.switches import take_over
from controlplane.fleet.topology import create_pool
hook = {"actuator": "webhook", "actuator_settings": {"url": "URL"}}
tests = program("tests")
pool = create_pool("SLUG", "H", Region.objects.get(), "m", Policy.objects.get(), actor=tests, **hook)
take_over(pool, until=timezone.now() + timedelta(hours=1), engines=2, actor=tests)
"""


def test_action_takes_effect_once_when_its_worker_is_killed_midway(grown: Grown) -> None:
    # The retry continues from the state that the first attempt stored.
    slug = f"hooked-{time.time_ns()}"
    web_port, *engine_ports = free_ports(3)
    grown.start_web(f"web-{slug}", web_port)
    grown.start(f"worker-{slug}", "manage.py", "worker")
    keys: list[str] = []

    def answer(_method: str, _path: str, headers: dict[str, str], _body: bytes) -> tuple[int, bytes]:
        keys.append(headers["idempotency-key"])
        if len(keys) == 1:
            # The caller is one of these workers, and waits for this answer.
            for process in grown.running("worker"):
                process.kill()
                process.wait()
            grown.start(f"successor-{slug}", "manage.py", "worker")
        number = list(dict.fromkeys(keys)).index(keys[-1])
        engine = {"name": f"{slug}-{number}", "url": f"http://127.0.0.1:{engine_ports[number]}"}
        return 200, json.dumps({"engine": engine}).encode()

    engines, ours = (
        "SELECT e.id FROM controlplane_engine e JOIN controlplane_pool p ON p.id = e.pool_id WHERE p.slug = %s",
        "SELECT o.key FROM controlplane_engineaction o JOIN controlplane_pool p ON p.id = o.pool_id WHERE p.slug = %s",
    )
    with http_server(answer) as (url, _asked):
        grown.manage("shell", "-c", ASK_FOR_TWO.replace("URL", url).replace("SLUG", slug))
        wait_until(lambda: len(grown.rows(engines, slug)) == 2)
        orders = [key for (key,) in grown.rows(ours, slug)]
    assert keys.count(keys[0]) >= 2
    assert sorted(orders) == sorted(set(keys))
    assert len(orders) == 2


def test_worker_without_redis_exits_and_names_manage_py_up(tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "HEADWAY_STATE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "manage.py", "worker"], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "manage.py up" in done.stderr
