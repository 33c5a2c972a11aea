"""R42, R43: people sign in and revoke keys while the database is not writable; changes work again once it is."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any

import psycopg
import pytest

from bench.live.live_fleet import engine_command, program_pids, wait_for
from bench.live.live_program import live_program
from bench.live.loopback_ports import free_ports
from gateway.access.revocation_file import RevocationFile
from tests.hard_edges.test_grown import MODEL, SERVE, Grown, decide
from tests.mounted_disk import small_disk
from tests.patience import PATIENCE_S, wait_until
from tests.private_postgresql import private_postgresql
from tests.private_redis import private_redis

pytestmark = [pytest.mark.processes, pytest.mark.thorough]


class SignedIn:
    """One person at one console."""

    def __init__(self, url: str) -> None:
        self._url, self._cookies = url, CookieJar()
        self._browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self._cookies))

    def sign_in(self, name: str, password: str) -> int:
        """Send the login form and return the status of the next page; 200 may also be the form with an error."""
        _, form = self.open("/login")
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', form)
        assert token is not None, form
        fields = {"username": name, "password": password, "csrfmiddlewaretoken": token[1], "next": "/"}
        return self.open("/login", urllib.parse.urlencode(fields).encode())[0]

    @property
    def is_in(self) -> bool:
        """Return whether there is a session."""
        return any(cooky.name == "sessionid" for cooky in self._cookies)

    def post(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Send JSON to the API; return the status and the response."""
        token = next(cooky.value for cooky in self._cookies if cooky.name == "csrftoken")
        headers = {"Content-Type": "application/json", "X-CSRFToken": token or ""}
        status, text = self.open(f"/api/v1/{path}", json.dumps(body).encode(), headers)
        return status, json.loads(text)

    def open(self, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> tuple[int, str]:
        """Request a page; return the status and the page."""
        request = urllib.request.Request(self._url + path, body, {"Referer": self._url + path, **(headers or {})})
        try:
            with self._browser.open(request, timeout=PATIENCE_S) as answer:
                return int(answer.status), answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()


ROOT = Path(__file__).resolve().parents[3]
REVOKED = (
    "from controlplane.models import ApiKey, AuditEvent\n"
    "key = ApiKey.objects.get(key_id='KEY')\n"
    "print(key.revoked_at is not None, AuditEvent.objects.filter(verb='key.revoke', object_id='KEY').count())"
)


def pid_of(program: int, module: str) -> int:
    """Return the PID of the program's process that runs a module; of two gateways, the serving one."""
    pids = [pid for pid in program_pids(program) if module in Path(f"/proc/{pid}/cmdline").read_text()]
    return min(pids)


def test_key_revocation_survives_a_full_disk_and_the_console_recovers_by_itself() -> None:
    with small_disk(mib=80) as disk, live_program(disk.path, engines=True) as program:
        before, admin = SignedIn(program.url), program.secrets.admin_password
        assert before.sign_in("admin", admin) == 200
        status, made = before.post("keys", {"tenant": "default", "name": "leaky", "scopes": ["route"]})
        assert status == 201, made
        key_id, key = made["key_id"], made["text"]
        wait_until(lambda: decide(program.url, key) == 200)
        web = pid_of(program.pid, "web_process")

        disk.fill()
        person = SignedIn(program.url)
        assert person.sign_in("admin", admin) == 200
        assert person.is_in
        assert "disk is full" in person.open("/")[1]
        assert person.post("tenants", {"slug": "new", "name": "New"})[0] == 503
        status, outcome = person.post(f"keys/{key_id}/revoke", {"why": "leaked"})
        assert (status, outcome["stored"]) == (202, False)
        wait_until(lambda: decide(program.url, key) == 401)
        assert decide(program.url, program.secrets.api_key) == 200
        os.kill(pid_of(program.pid, "gateway_process"), signal.SIGKILL)
        wait_for(f"{program.url}/ready")
        assert [decide(program.url, key) for _ in range(5)] == [401] * 5
        assert program.shell(REVOKED.replace("KEY", key_id)).split() == ["False", "0"]

        disk.free()
        wait_until(lambda: program.shell(REVOKED.replace("KEY", key_id)).split() == ["True", "1"])
        wait_until(lambda: person.post("tenants", {"slug": "new", "name": "New"})[0] == 201)
        assert decide(program.url, key) == 401
        assert pid_of(program.pid, "web_process") == web, "no process was restarted for it"


def test_key_revocation_survives_a_restart_of_all_processes_on_a_full_disk() -> None:
    with small_disk(mib=80) as disk, live_program(disk.path, engines=True) as program:
        key = program.secrets.api_key
        wait_until(lambda: decide(program.url, key) == 200)
        disk.fill()
        person = SignedIn(program.url)
        person.sign_in("admin", program.secrets.admin_password)
        [key_id] = re.findall(
            r"key-[0-9a-f]{32}",
            program.shell("from controlplane.models import ApiKey\nprint(ApiKey.objects.get().key_id)"),
        )
        assert person.post(f"keys/{key_id}/revoke", {})[0] == 202
        wait_until(lambda: len(RevocationFile(program.state_dir).load()) == 1)
        # The restart empties the bus; the database and the snapshot on disk still have the key.
        program.restart()
        wait_for(f"{program.url}/ready")
        assert [decide(program.url, key) for _ in range(5)] == [401] * 5
        disk.free()
        wait_until(lambda: program.shell(REVOKED.replace("KEY", key_id)).split() == ["True", "1"])


def test_revoke_key_command_works_without_the_database(tmp_path: Path) -> None:
    with (
        private_postgresql() as server,
        live_program(tmp_path, engines=True, environment={"DATABASE_URL": server.url}) as program,
    ):
        key = program.secrets.api_key
        wait_until(lambda: decide(program.url, key) == 200)
        server.crash()
        said = program.manage("revoke_key", key[:11], "--why", "leaked")
        assert "The bus has the revocation of the key, key-" in said
        wait_until(lambda: decide(program.url, key) == 401)
        os.kill(pid_of(program.pid, "gateway_process"), signal.SIGKILL)
        wait_for(f"{program.url}/ready")
        assert [decide(program.url, key) for _ in range(5)] == [401] * 5
        server.start()
        with psycopg.connect(server.url, autocommit=True) as database:

            def stored() -> bool:
                row = database.execute(
                    "SELECT actor_name, via, why FROM controlplane_auditevent WHERE verb = 'key.revoke'"
                )
                event = row.fetchone()
                return event is not None and event[:2] == ("revoke_key", "command") and event[2].startswith("leaked. ")

            wait_until(stored)
        assert decide(program.url, key) == 401


def test_every_gateway_rejects_a_revoked_key_while_postgresql_is_read_only(tmp_path: Path) -> None:
    web_port, one, other, late, *engine_ports = free_ports(7)
    engine = subprocess.Popen(engine_command(engine_ports, ["--time-scale", "20"]), cwd=ROOT)
    with private_postgresql() as server, private_redis(tmp_path) as redis:
        grown = Grown(server.url, redis.url, tmp_path)
        try:
            grown.start_web("web", web_port)
            wait_for(f"http://127.0.0.1:{engine_ports[0]}/health")
            scopes = ("--scopes", "infer", "route", "manage", "--role", "admin")
            leaky, admin = (
                grown.manage("create_api_key", "--name", name, *scopes).split()[-1] for name in ("leaky", "x")
            )
            serve = SERVE.replace("URL", f"http://127.0.0.1:{engine_ports[0]}").replace("MODEL", MODEL)
            grown.manage("shell", "-c", serve)
            gateways = [start_gateway(grown, port) for port in (one, other)]
            for gateway in gateways:
                wait_until(lambda gateway=gateway: decide(gateway, leaky) == 200)  # type: ignore[misc]

            make_read_only(server.url, "on")
            [(key_id,)] = grown.rows("SELECT key_id FROM controlplane_apikey WHERE name = 'leaky'")
            assert post(f"http://127.0.0.1:{web_port}/api/v1/tenants", admin, {"slug": "n", "name": "N"})[0] == 503
            status, outcome = post(f"http://127.0.0.1:{web_port}/api/v1/keys/{key_id}/revoke", admin, {"why": "leaked"})
            assert (status, outcome["stored"]) == (202, False), outcome
            for gateway in gateways:
                wait_until(lambda gateway=gateway: decide(gateway, leaky) == 401)  # type: ignore[misc]
            assert post(f"http://127.0.0.1:{web_port}/api/v1/tenants", leaky, {"slug": "n", "name": "N"})[0] == 401
            assert decide(gateways[0], admin) == 200
            # A gateway that starts now rejects the key, too.
            assert decide(start_gateway(grown, late), leaky) == 401

            make_read_only(server.url, "off")
            grown.start("worker", "manage.py", "worker")
            wait_until(lambda: grown.rows("SELECT 1 FROM controlplane_auditevent WHERE verb = 'key.revoke'"))
            assert [decide(gateway, leaky) for gateway in gateways] == [401, 401]
            # The database has the revocation now, so the bus may lose it.
            redis.kill()
            redis.start()
            wait_until(lambda: decide(gateways[0], leaky) == 401 and decide(gateways[0], admin) == 200)
        finally:
            grown.close()
            engine.kill()
            engine.wait()


def start_gateway(grown: Grown, port: int) -> str:
    """Start a gateway and return its address once it serves."""
    name = f"gateway-{port}"
    grown.start(name, "-m", "gateway", "--port", str(port), "--state-dir", str(grown.state(name)))
    wait_for(f"http://127.0.0.1:{port}/ready")
    return f"http://127.0.0.1:{port}"


def make_read_only(url: str, state: str) -> None:
    """Make new connections read-only ("on") or writable again ("off"), and end open ones."""
    with psycopg.connect(url, autocommit=True) as database:
        database.execute("SET default_transaction_read_only = off")
        database.execute(f"ALTER DATABASE postgres SET default_transaction_read_only = {state}")
        database.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND datname IS NOT NULL"
        )


def post(address: str, key: str, body: dict[str, str]) -> tuple[int, dict[str, Any]]:
    """Send JSON with an API key; return the status and the response."""
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    request = urllib.request.Request(address, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return int(answer.status), json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
