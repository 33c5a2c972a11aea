"""`manage.py doctor` as a process: text, JSON, exit status, and no secrets in the output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from controlplane.project.first_run.secrets import secrets_of

ROOT = Path(__file__).resolve().parents[3]


def doctor(state_dir: Path, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], "HEADWAY_STATE_DIR": str(state_dir), **variables}
    return subprocess.run(
        [sys.executable, "manage.py", "doctor", "--port", "1", *options],
        cwd=ROOT, env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture
def migrated(tmp_path: Path) -> Path:
    env = {"PATH": os.environ["PATH"], "HEADWAY_STATE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "manage.py", "migrate", "-v", "0"], cwd=ROOT, env=env, check=True)
    tmp_path.chmod(0o700)
    (tmp_path / "headway.sqlite3").chmod(0o600)
    return tmp_path


def as_json(done: subprocess.CompletedProcess[str]) -> dict[str, list[Any]]:
    checks: dict[str, list[Any]] = {}
    for load in json.loads(done.stdout)["checks"]:
        checks.setdefault(load["check"], []).append(load["state"])
    return checks


def test_sound_installation_exits_with_0_and_every_check_has_a_finding(migrated: Path) -> None:
    done = doctor(migrated, "--json", "--host", "127.0.0.1")
    checks = as_json(done)
    assert len(checks) == 18
    assert checks["database"] == checks["migrations"] == checks["secrets"] == checks["state directory"] == ["ok"]
    assert done.returncode == (0 if json.loads(done.stdout)["healthy"] else 1)
    assert "SQLite answers" in done.stdout


def test_broken_installation_exits_with_1_prints_remedies_and_no_secrets(tmp_path: Path) -> None:
    urls = {
        "DATABASE_URL": "postgres://user:hunter2@127.0.0.1:1/headway",
        "REDIS_URL": "redis://:hunter2@127.0.0.1:1/0",
    }
    done = doctor(tmp_path, **urls)
    assert done.returncode == 1
    assert "→ Check that the server runs" in done.stdout
    secrets = secrets_of(tmp_path)
    everything = done.stdout + done.stderr
    for secret in ("hunter2", secrets.secret_key, secrets.fleet_secret, secrets.api_key, secrets.admin_password):
        assert secret not in everything
