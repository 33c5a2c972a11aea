"""compose.yaml as containers: its image, networks, volumes, secrets and confinement, run by podman-compose."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from bench.live.loopback_ports import free_ports
from tests.deploy.packages.containers import BASE, LIMITS, Image
from tests.deploy.packages.package_tools import DEPLOY, installed
from tests.deploy.packages.test_compose import COMPOSE, HOST, SECRETS, SERVICES, asked, chat_answer, self_signed
from tests.patience import wait_until

PROJECT = f"headwaytest{os.getpid()}"
_MODEL = "chat-8b"
# No registry is needed: what is not Headway comes from Debian, under the names of compose.yaml.
_OTHERS = rf"""
FROM {BASE} AS postgres
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends postgresql-17
ENV PATH=/usr/lib/postgresql/17/bin:/usr/sbin:/usr/bin:/sbin:/bin
RUN printf '%s\n' '#!/bin/sh' 'set -e' 'cd /tmp' \
  'data=/var/lib/postgresql/data/main; chown postgres /var/lib/postgresql/data /run/postgresql' \
  'as() {{ runuser -u postgres -- "$@"; }}' \
  'echo "$POSTGRES_PASSWORD" > password; chmod 644 password' \
  'as initdb -D $data -E UTF8 --locale=C.UTF-8 -A scram-sha-256 -U "$POSTGRES_USER" --pwfile password' \
  'echo "host all all all scram-sha-256" >> $data/pg_hba.conf' \
  'echo "create database $POSTGRES_DB" | as postgres --single -D $data postgres' \
  'exec runuser -u postgres -- postgres -D $data -c listen_addresses=*' > /start && chmod 755 /start
CMD ["/start"]
FROM {BASE} AS redis
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends redis-server
FROM {BASE} AS nginx
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends nginx-light
CMD ["nginx", "-g", "daemon off;"]
"""


def _run(*words: str, folder: Path, env: dict[str, str]) -> str:
    done = subprocess.run(words, cwd=folder, env=env, check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


class Installation:
    """The installation of compose.yaml in a folder of its own."""

    def __init__(self, image: Image, folder: Path, port: int) -> None:
        self._folder = folder
        self.url = f"https://127.0.0.1:{port}"
        self._env = {**os.environ, "CONTAINERS_CONF": str(folder / "containers.conf")}
        limits = ", ".join(f'"{limit.removeprefix("--ulimit=")}"' for limit in LIMITS)
        (folder / "containers.conf").write_text(
            f'[containers]\ndefault_ulimits = [{limits}]\n[engine]\nruntime = "{image.runtime}"\n'
            '[network]\nnetwork_backend = "netavark"\n'
        )
        settings = {**{name: secrets.token_hex(32) for name in SECRETS}, "COMPOSE_PROJECT_NAME": PROJECT}
        settings |= {"HEADWAY_HOST": HOST, "HEADWAY_ENGINE_NETWORKS": "10.0.0.0/8", "HEADWAY_IMAGE": image.name}
        settings["HEADWAY_LISTEN"] = f"127.0.0.1:{port}"
        (folder / ".env").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        shutil.copy(DEPLOY / "compose" / "nginx.conf", folder)
        (folder / "tls").mkdir()
        self_signed(folder / "tls" / "certificate.pem", folder / "tls" / "key.pem")
        # Podman before 5 cannot wait for dependencies, so the test starts the services in their order.
        services = {name: {k: v for k, v in it.items() if k != "depends_on"} for name, it in SERVICES.items()}
        (folder / "compose.yaml").write_text(yaml.safe_dump({**COMPOSE, "services": services}))

    def up(self, *names: str) -> None:
        """Start services."""
        self._compose("up", "--detach", "--no-build", *names)

    def becomes_healthy(self, name: str) -> None:
        """Wait until a service's health check passes."""
        check = ["podman", "healthcheck", "run", f"{PROJECT}_{name}_1"]
        wait_until(lambda: subprocess.run(check, env=self._env, check=False, capture_output=True).returncode == 0)

    def _compose(self, *words: str) -> str:
        command = [sys.executable, "-m", "podman_compose", "--in-pod", "false", *words]
        return _run(*command, folder=self._folder, env=self._env)

    def podman(self, *words: str) -> str:
        """Return what a podman command prints."""
        return _run("podman", *words, folder=self._folder, env=self._env)

    def manage(self, *words: str) -> str:
        """Return what a command of Headway prints in the container of web."""
        return self.podman("exec", f"{PROJECT}_web_1", "python", "manage.py", *words)

    def down(self) -> None:
        """Remove all containers, volumes, and networks."""
        self._compose("down", "--volumes")


@contextmanager
def _started(image: Image, folder: Path) -> Iterator[Installation]:
    made = Installation(image, folder, free_ports(1)[0])
    engine = f"{PROJECT}_engine"
    try:
        made.up("postgres", "redis")
        # Podman's name server fails for a moment when a container joins, so the engine joins early.
        made.podman(
            "run", "--detach", "--no-healthcheck", "--name", engine, "--network", f"{PROJECT}_default", image.name,
            "python", "manage.py", "simengine", "--host", "0.0.0.0", "--port", "8000", "--served-model-name", _MODEL,  # noqa: S104
        )  # fmt: skip
        made.becomes_healthy("postgres")
        made.becomes_healthy("redis")
        made.up("migrate")
        assert made.podman("wait", f"{PROJECT}_migrate_1").strip() == "0"
        made.up("web", "worker", "gateway-1", "gateway-2")
        made.becomes_healthy("web")
        # It does not start without the addresses of the servers behind it.
        made.up("nginx")
        yield made
    finally:
        subprocess.run(["podman", "rm", "--force", engine], check=False, capture_output=True)
        made.down()


@pytest.mark.processes
@pytest.mark.thorough
def test_the_composed_containers_route_a_request(image: Image, tmp_path: Path) -> None:
    installed()
    if not image.runtime:
        pytest.skip("this kernel runs no container of podman")
    others = tmp_path / "others"
    others.mkdir()
    (others / "Dockerfile").write_text(_OTHERS)
    for tag in {service["image"] for service in SERVICES.values() if "build" not in service}:
        target = tag.partition(":")[0]
        build = ["buildah", "build", "--quiet", "--pull-never", "--format=docker", "--isolation=chroot"]
        _run(*build, f"--target={target}", f"--tag=docker.io/library/{tag}", ".", folder=others, env=dict(os.environ))
    (tmp_path / "installation").mkdir()
    with _started(image, tmp_path / "installation") as made:
        shown = made.podman(
            "inspect", f"{PROJECT}_engine", "--format", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
        )
        connected = made.manage("connect", f"http://{shown.strip()}:8000", "--approximate", "--yes")
        key = re.search(r"\(shown once\): (\S+)", connected)
        assert key is not None, connected
        for name in ("gateway-1", "gateway-2"):
            made.becomes_healthy(name)
        assert asked(f"{made.url}/ready")[0] == 200
        for _ in range(4):
            assert chat_answer(made.url, key[1]) == "chat.completion"
        assert asked(f"{made.url}/login")[0] == 200
        assert asked(f"{made.url}/metrics")[0] == 404
        wait_until(lambda: "The gateways agree on who owns 1 pool." in made.manage("doctor"))
