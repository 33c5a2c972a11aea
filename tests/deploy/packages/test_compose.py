"""compose.yaml: the Compose specification's schema, its consistency, and its commands as processes."""

from __future__ import annotations

import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from bench.live.loopback_ports import free_ports
from gateway.api import advisory_api, explain_api, feedback_api
from gateway.app import OBSERVE
from gateway.base.peer_settings import LISTEN
from gateway.requests.formats.endpoints import ENDPOINTS
from gateway.server.http.engine_paths import BATCH, ENGINE_PATHS, ROUTE
from gateway.server.process.shutdown import DRAIN_S
from tests.controlplane.simulated_engine import SimulatedEngine
from tests.deploy.packages.package_tools import DEPLOY, installed
from tests.deploy.real_proxy import binary
from tests.patience import PATIENCE_S, wait_until
from tests.private_postgresql import own_database, postgresql
from tests.program import end

FILE = DEPLOY / "compose" / "compose.yaml"
COMPOSE: dict[str, Any] = yaml.safe_load(FILE.read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
HOST = "headway.example"
SECRETS = {
    name: f"kJ3d8fTq0vW7xY2zAbCdEfGhIjKlMn{number}OpQrStUv"
    for number, name in enumerate(
        ("SECRET_KEY", "HEADWAY_FLEET_SECRET", "POSTGRES_PASSWORD", "REDIS_PASSWORD", "HEADWAY_SCRAPE_TOKEN")
    )
}
LIMIT_S = 240.0
EXAMPLE = (DEPLOY.parent / ".env.example").read_text()


def filled(text: str, given: Mapping[str, str]) -> str:
    """Interpolate a value as Compose does; raise KeyError for a missing required variable."""

    def value(match: re.Match[str]) -> str:
        name, kind, rest = match[1], match[2], match[3]
        return given[name] if kind == ":?" else given.get(name) or rest

    return re.sub(r"\$\{([A-Z_]+)(:[?-])([^}]*)\}", value, text)


def test_the_compose_schema_accepts_the_file() -> None:
    schema = json.loads((installed() / "compose" / "config" / "compose_spec.json").read_text())
    jsonschema.Draft201909Validator(schema).validate(COMPOSE)


def test_compose_has_every_process_of_a_grown_installation() -> None:
    commands = {name: " ".join(service.get("command", ())) for name, service in SERVICES.items()}
    assert set(commands) == {"postgres", "redis", "migrate", "web", "worker", "gateway-1", "gateway-2", "nginx"}
    assert commands["migrate"] == "python manage.py migrate --no-input"
    assert all(commands[name].startswith("python -m gateway") for name in ("gateway-1", "gateway-2"))


def test_dependencies_of_services_exist_and_can_be_met() -> None:
    for service in SERVICES.values():
        for name, how in service.get("depends_on", {}).items():
            healthy = "test" in SERVICES[name].get("healthcheck", {})
            assert healthy or how["condition"] != "service_healthy", name
    named = {item.split(":")[0] for service in SERVICES.values() for item in service.get("volumes", ())}
    assert {item for item in named if not item.startswith((".", "/"))} == set(COMPOSE["volumes"])


def test_compose_contains_no_secret_and_names_existing_settings() -> None:
    text = FILE.read_text()
    for name in SECRETS:
        assert re.findall(rf"\$\{{{name}(.)", text), name
        assert not re.findall(rf"\$\{{{name}(?!:\?|_)", text), f"{name} has to be required"
    settings = set(re.findall(r"^([A-Z_]+)=", EXAMPLE, re.MULTILINE))
    for name in ("migrate", "web", "worker", "gateway-1", "gateway-2"):
        assert set(SERVICES[name]["environment"]) <= settings, name


def test_only_gateways_and_webs_own_gateway_listen_for_peers() -> None:
    listening = {name for name, service in SERVICES.items() if LISTEN in service.get("environment", {})}
    assert listening == {"web", "gateway-1", "gateway-2"}


def test_processes_are_confined_and_have_time_to_drain() -> None:
    for name in ("web", "worker", "gateway-1", "gateway-2"):
        service = SERVICES[name]
        assert (service["cap_drop"], service["read_only"]) == (["ALL"], True)
        assert int(service["stop_grace_period"].removesuffix("s")) > DRAIN_S
    published = {name for name, service in SERVICES.items() if "ports" in service}
    assert published == {"nginx"}


class Host:
    """Run the services' commands on this machine; container names and ports become loopback addresses."""

    def __init__(self, folder: Path, database: str, redis_port: int, http: dict[str, int]) -> None:
        self.folder = folder
        self._database = database
        self._redis = f"@127.0.0.1:{redis_port}"
        self.http = http
        self._given = {**SECRETS, "HEADWAY_HOST": HOST, "HEADWAY_ENGINE_NETWORKS": "127.0.0.0/8"}

    def environment(self, name: str) -> dict[str, str]:
        """Return the environment that Compose would set for a service, with this machine's addresses."""
        environment = {
            key: filled(str(value), self._given) for key, value in SERVICES[name].get("environment", {}).items()
        }
        if "DATABASE_URL" in environment:
            assert environment["DATABASE_URL"].endswith("@postgres:5432/headway")
            environment["DATABASE_URL"] = self._database
        if "REDIS_URL" in environment:
            environment["REDIS_URL"] = environment["REDIS_URL"].replace("@redis:6379", self._redis)
        if LISTEN in environment:
            assert environment[LISTEN] == f"{name}:7946", "the name under which Compose's network knows it"
            environment[LISTEN] = "127.0.0.1:0"
        # A container has loopback to itself; here the engines are on it.
        allowed = {"HEADWAY_ALLOW_LOOPBACK_ENGINES": "true"} if "SECRET_KEY" in environment else {}
        state = self.folder / name
        return {"PATH": os.environ["PATH"], "HEADWAY_STATE_DIR": str(state), **environment, **allowed}

    def command(self, words: list[str], name: str) -> list[str]:
        """Return a command with this machine's interpreter, ports and folders."""
        swap = {
            "/var/lib/headway": str(self.folder / name),
            "0.0.0.0": "127.0.0.1",  # noqa: S104 - what is replaced
            "8000": str(self.http.get(name)),
        }
        text = [filled(word, self._given) for word in words]
        for old, new in swap.items():
            text = [word.replace(old, new) for word in text]
        return [sys.executable if word == "python" else word for word in text]

    @contextmanager
    def service(self, name: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run one service during the block."""
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                self.command(SERVICES[name]["command"], name),
                cwd=DEPLOY.parent, env=self.environment(name), stdout=log, stderr=log,
            )  # fmt: skip
        try:
            yield process
        finally:
            end(process)

    def manage(self, *words: str) -> str:
        """Run a command in web's environment, as `docker compose exec web` would."""
        command = [sys.executable, "manage.py", *words]
        done = subprocess.run(
            command, cwd=DEPLOY.parent, env=self.environment("web"), check=False, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def becomes_healthy(self, name: str) -> None:
        """Run the service's own health check until it passes."""
        check = SERVICES[name]["healthcheck"]["test"]
        assert check[0] == "CMD"
        until_s = time.monotonic() + LIMIT_S
        command = self.command(check[1:], name)
        while subprocess.run(command, cwd=DEPLOY.parent, env=self.environment(name), check=False).returncode:
            assert time.monotonic() < until_s, (self.folder / f"{name}.log").read_text()
            time.sleep(0.5)


@contextmanager
def redis_of(host: Host, port: int) -> Iterator[None]:
    """Run the Redis service's command on a loopback port during the block, once its health check passes."""
    binary("redis-server")
    service = SERVICES["redis"]
    command = [*host.command(service["command"], "redis"), "--port", str(port), "--bind", "127.0.0.1"]
    process = subprocess.Popen([*command, "--dir", str(host.folder)], stdout=subprocess.DEVNULL)
    try:
        check = service["healthcheck"]["test"][1].replace("redis-cli", f"redis-cli -p {port}")
        until_s = time.monotonic() + LIMIT_S
        while subprocess.run(["sh", "-c", check], env=host.environment("redis"), check=False).returncode:
            assert time.monotonic() < until_s
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait()


def self_signed(certificate: Path, key: Path) -> None:
    """Write a certificate for the public name, and its key."""
    openssl = shutil.which("openssl")
    assert openssl is not None
    made = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={HOST}"]
    subprocess.run([openssl, *made, "-keyout", key, "-out", certificate], check=True, stderr=subprocess.DEVNULL)


@contextmanager
def front(host: Host) -> Iterator[str]:
    """Run nginx with its file and a certificate made for the test; yield its address."""
    nginx = binary("nginx")
    certificate, key, port = host.folder / "certificate.pem", host.folder / "key.pem", free_ports(1)[0]
    self_signed(certificate, key)
    text = (DEPLOY / "compose" / "nginx.conf").read_text()
    for old, new in {
        "/run/secrets/tls_certificate;": f"{certificate};",
        "/run/secrets/tls_key;": f"{key};",
        "listen 8443": f"listen 127.0.0.1:{port}",
        **{f"server {name}:8000": f"server 127.0.0.1:{at}" for name, at in host.http.items()},
        "http {": "http {\n" + "".join(
            f"{item}_temp_path {host.folder}/{item};\n" for item in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        ) + "access_log off;",
    }.items():  # fmt: skip
        assert old in text
        text = text.replace(old, new)
    config = host.folder / "nginx.conf"
    config.write_text(f"daemon off; pid {host.folder}/nginx.pid; error_log {host.folder}/nginx.log;\n{text}")
    subprocess.run([nginx, "-t", "-q", "-c", config], check=True)
    process = subprocess.Popen([nginx, "-c", config, "-p", host.folder])
    try:
        yield f"https://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def asked(url: str, body: dict[str, Any] | None = None, key: str = "") -> tuple[int, str]:
    """Send a request through nginx to the public name, without verifying the test's certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    headers = {"Host": HOST, "Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S, context=context) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def chat_answer(url: str, key: str) -> str:
    """Return the kind of answer to a chat."""
    chat = {"model": "chat-8b", "max_tokens": 4, "messages": [{"role": "user", "content": "hello"}]}
    status, text = asked(f"{url}/v1/chat/completions", chat, key)
    assert status == 200, text
    return str(json.loads(text)["object"])


def test_nginx_routes_all_gateway_paths_to_the_gateways() -> None:
    text = (DEPLOY / "compose" / "nginx.conf").read_text()
    locations = re.findall(r"location (~|=)? ?(\S+) { proxy_pass http://gateways; }", text)
    ours = [re.compile(path if how == "~" else re.escape(path) + ("$" if how else "")) for how, path in locations]
    below = (feedback_api.PREFIX, explain_api.PREFIX, advisory_api.PREFIX)
    theirs = {ROUTE, BATCH, OBSERVE, advisory_api.ADVISORIES, advisory_api.TOKENS, *ENGINE_PATHS}
    theirs |= {item.path for item in ENDPOINTS} | {f"{item}some-id" for item in below}
    assert [path for path in sorted(theirs) if not any(our.match(path) for our in ours)] == []
    assert not any(our.match("/api/v1/pools") for our in ours)


@pytest.mark.processes
@pytest.mark.thorough
def test_the_compose_commands_route_a_request(tmp_path: Path) -> None:
    binary("nginx")
    redis_port, *ports = free_ports(4)
    engine = SimulatedEngine(model="chat-8b", block_tokens=32)
    engine.start()
    with ExitStack() as stack:
        stack.callback(engine.stop)
        database = stack.enter_context(own_database(stack.enter_context(postgresql())))
        host = Host(tmp_path, database, redis_port, dict(zip(("web", "gateway-1", "gateway-2"), ports, strict=True)))
        stack.enter_context(redis_of(host, redis_port))
        with host.service("migrate") as migrate:
            assert migrate.wait(LIMIT_S) == 0, (tmp_path / "migrate.log").read_text()
        for name in ("web", "worker", "gateway-1", "gateway-2"):
            stack.enter_context(host.service(name))
        host.becomes_healthy("web")
        shown = host.manage("connect", engine.url, "--port", str(host.http["web"]))
        key = re.search(r"\(shown once\): (\S+)", shown)
        assert key is not None, shown
        for name in ("gateway-1", "gateway-2"):
            host.becomes_healthy(name)
        url = stack.enter_context(front(host))
        assert asked(f"{url}/ready")[0] == 200
        for _ in range(4):
            assert chat_answer(url, key[1]) == "chat.completion"
        assert asked(f"{url}/login")[0] == 200
        assert asked(f"{url}/metrics")[0] == 404
        wait_until(lambda: "The gateways agree on who owns 1 pool." in host.manage("doctor"))
