"""R50: the program does not start with settings that would lose data or permit access, and reports the reason."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from bench.live.loopback_ports import free_ports
from tests.program import run_to_end

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parents[2]
SECRET = "kJ3-d8fTq0_vW7xY2zAbCdEfGhIjKlMnOpQrStUv"
GIVEN = {"SECRET_KEY": SECRET, "HEADWAY_FLEET_SECRET": SECRET[::-1]}

MIXES = {
    "several processes with a bus each": ({"HEADWAY_PROCESSES": "2", **GIVEN}, "their own bus"),
    "as a process manager says it": ({"WEB_CONCURRENCY": "4", **GIVEN}, "4 processes would each have their own"),
    "secrets of each machine's own": (
        {"HEADWAY_PROCESSES": "2", "REDIS_URL": "redis://127.0.0.1:1/0"}, "Set SECRET_KEY and HEADWAY_FLEET",
    ),
    "a broker that is none": ({"REDIS_URL": "localhost:6379", **GIVEN}, "redis://host:6379/0"),
    "the default secret": (
        {"HEADWAY_ALLOWED_HOSTS": "console.example", **GIVEN, "SECRET_KEY": "django-insecure-" + SECRET},
        "SECRET_KEY is too weak",
    ),
    "a weak secret before gateways of other machines": (
        {**GIVEN, "HEADWAY_FLEET_SECRET": "abc", "HEADWAY_PEER_LISTEN": "192.0.2.1:7946"},
        "HEADWAY_FLEET_SECRET is too weak",
    ),
    "debug in the open": (
        {"HEADWAY_ALLOWED_HOSTS": "console.example", "HEADWAY_DEBUG": "1", **GIVEN}, "Turn HEADWAY_DEBUG off",
    ),
}  # fmt: skip


def run(command: list[str], state_dir: Path, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "HEADWAY_STATE_DIR": str(state_dir), **variables}
    return run_to_end(command, environment)


@pytest.mark.parametrize(("variables", "sentence"), MIXES.values(), ids=MIXES.keys())
def test_manage_py_up_rejects_unsafe_settings(tmp_path: Path, variables: dict[str, str], sentence: str) -> None:
    done = run(["manage.py", "up", "--no-demo", "--port", str(free_ports(1)[0])], tmp_path, variables)
    assert done.returncode == 1
    assert sentence in done.stderr
    assert not (tmp_path / "headway.sqlite3").exists()


@pytest.mark.parametrize(
    ("host", "variables"),
    [("0.0.0.0", {}), ("::", {"HEADWAY_DEBUG": "1"}), ("192.0.2.1", {})],  # noqa: S104 - rejected
    ids=["any", "any of IPv6, debug", "one"],
)
def test_reachable_address_is_rejected_with_settings_for_loopback_only(
    tmp_path: Path, host: str, variables: dict[str, str]
) -> None:
    done = run(["manage.py", "up", "--host", host, "--port", str(free_ports(1)[0])], tmp_path, variables)
    assert done.returncode == 1
    assert f"--host {host} admits other machines" in done.stderr
    assert not (tmp_path / "headway.sqlite3").exists()


def test_server_started_without_manage_py_rejects_unsafe_settings(tmp_path: Path) -> None:
    command = ["-m", "uvicorn", "controlplane.project.asgi:application", "--port", str(free_ports(1)[0])]
    done = run(command, tmp_path, {"HEADWAY_PROCESSES": "2", **GIVEN})
    assert done.returncode != 0
    assert "their own bus" in done.stderr


def test_sqlite_without_immediate_is_rejected(tmp_path: Path) -> None:
    settings = tmp_path / "careless.py"
    settings.write_text(
        "from controlplane.project.settings import *\nDATABASES['default']['OPTIONS'].pop('transaction_mode')\n"
    )
    variables = {"DJANGO_SETTINGS_MODULE": "careless", "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    done = run(["manage.py", "up", "--no-demo", "--port", str(free_ports(1)[0])], tmp_path, variables)
    assert done.returncode == 1
    assert "IMMEDIATE" in done.stderr


@pytest.mark.parametrize(
    "variables",
    [
        {"HEADWAY_FLEET_SECRET": "abc"},
        {"HEADWAY_FLEET_SECRET": SECRET[:31]},
        {"HEADWAY_FLEET_SECRET": "ab" * 20},
        {"HEADWAY_FLEET_SECRET": SECRET, "HEADWAY_FLEET_SECRET_ALSO": "abc"},
    ],
)
def test_standalone_gateway_rejects_a_weak_secret_even_on_loopback(tmp_path: Path, variables: dict[str, str]) -> None:
    done = run(["-m", "gateway", "--state-dir", str(tmp_path)], tmp_path, variables)
    assert done.returncode == 2
    assert f"Set {list(variables)[-1]} to a secret of at least 32 random characters" in done.stderr
    assert not any(secret in done.stderr for secret in variables.values())


@pytest.mark.parametrize("missing", ["HEADWAY_FLEET_SECRET", "--redis"])
def test_standalone_gateway_rejects_unusable_settings(tmp_path: Path, missing: str) -> None:
    variables = {"HEADWAY_FLEET_SECRET": SECRET} if missing == "--redis" else {}
    options = ["--redis", "localhost:6379"] if missing == "--redis" else []
    done = run(["-m", "gateway", "--state-dir", str(tmp_path), *options], tmp_path, variables)
    assert done.returncode == 2
    assert missing in done.stderr
