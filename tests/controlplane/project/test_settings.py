"""Settings come from the environment. Invalid values stop the program, and every variable is documented."""

from __future__ import annotations

import ast
import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from csp.constants import NONCE
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from controlplane.platform.environment import Environment

ROOT = Path(__file__).resolve().parents[3]
SHOWN = [
    "SECRET_KEY",
    "DEBUG",
    "LOOPBACK_ONLY",
    "SESSION_COOKIE_SECURE",
    "CSRF_COOKIE_SECURE",
    "SECURE_HSTS_SECONDS",
    "PROCESSES",
]


def read_settings(state_dir: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Import the settings in a separate process with only these variables."""
    program = (
        "import json; from controlplane.project import settings as s;"
        f"shown = {{name: getattr(s, name) for name in {SHOWN!r}}};"
        "print(json.dumps(shown | {'db': s.DATABASES['default']}))"
    )
    env = {"PATH": os.environ["PATH"], "HEADWAY_STATE_DIR": str(state_dir), **variables}
    return subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )


def test_one_machine_works_without_any_variable(tmp_path: Path) -> None:
    shown = json.loads(read_settings(tmp_path).stdout)
    assert shown["db"]["OPTIONS"]["transaction_mode"] == "IMMEDIATE"
    assert "journal_mode=WAL" in shown["db"]["OPTIONS"]["init_command"]
    assert shown["db"]["NAME"] == str(tmp_path / "headway.sqlite3")
    assert (shown["DEBUG"], shown["LOOPBACK_ONLY"], shown["SESSION_COOKIE_SECURE"]) == (False, True, False)
    assert len(shown["SECRET_KEY"]) >= 50


def test_cookies_are_secure_if_the_server_is_reachable_by_others(tmp_path: Path) -> None:
    shown = json.loads(read_settings(tmp_path, HEADWAY_ALLOWED_HOSTS="127.0.0.1,console.example").stdout)
    assert shown["SESSION_COOKIE_SECURE"]
    assert shown["CSRF_COOKIE_SECURE"]
    assert shown["SECURE_HSTS_SECONDS"] > 0


def test_secrets_of_the_environment_replace_the_state_file(tmp_path: Path) -> None:
    given = tmp_path / "key.txt"
    given.write_text("k" * 50 + "\n")
    result = read_settings(tmp_path / "var", SECRET_KEY_FILE=str(given), HEADWAY_FLEET_SECRET="f" * 40)
    assert json.loads(result.stdout)["SECRET_KEY"] == "k" * 50
    assert not (tmp_path / "var" / "first_run.json").exists()


def test_postgres_url_has_no_sqlite_options(tmp_path: Path) -> None:
    shown = json.loads(read_settings(tmp_path, DATABASE_URL="postgres://u:p@db.internal:5433/sw").stdout)
    assert (shown["db"]["HOST"], shown["db"]["PORT"], shown["db"]["NAME"]) == ("db.internal", 5433, "sw")
    assert {"transaction_mode", "timeout", "init_command"}.isdisjoint(shown["db"]["OPTIONS"])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HEADWAY_DEBUG", "maybe"),
        ("HEADWAY_BEHIND_TLS_PROXY", "2"),
        ("HEADWAY_PROCESSES", "many"),
        ("HEADWAY_PROCESSES", "0"),
        ("WEB_CONCURRENCY", "-1"),
        ("HEADWAY_MAX_BODY_BYTES", "1"),
        ("HEADWAY_PROXY_BODY_BYTES", "268435457"),
        ("HEADWAY_CLIENT_IDLE_S", "0"),
        ("HEADWAY_CORS_ORIGINS", "app.example.com"),
        ("HEADWAY_ENGINE_CA", "/nowhere.pem"),
        ("HEADWAY_ENGINE_CERTIFICATE", "/nowhere.pem"),
        ("HEADWAY_LOG_LEVEL", "LOUD"),
        ("HEADWAY_ENGINE_NETWORKS", "10.0.0.0/99"),
        ("DATABASE_URL", "nonsense"),
        ("SECRET_KEY_FILE", "/nonexistent"),
        ("HEADWAY_DEMO_PORTS_FROM", "80"),
    ],
)
def test_invalid_value_stops_the_program_and_names_its_variable(tmp_path: Path, name: str, value: str) -> None:
    result = read_settings(tmp_path, **{name: value})
    assert result.returncode != 0
    assert name in result.stderr.splitlines()[-1]


def test_secrets_file_readable_by_others_stops_the_program(tmp_path: Path) -> None:
    read_settings(tmp_path)
    (tmp_path / "first_run.json").chmod(0o644)
    result = read_settings(tmp_path)
    assert result.returncode != 0
    assert "chmod 600" in result.stderr.splitlines()[-1]


NO_SETTINGS = {"HEADWAY_PROGRAM", "HEADWAY_ENGINE_KEY_CHAT", "HEADWAY_PROVIDER_KEY_MAIN", "HEADWAY_NOTIFY_MAIN"}
"""Set by the installed package's command line, and examples in help texts."""


def variables_read() -> set[str]:
    """Return the environment variables that the program reads through `env` or os.environ."""
    names = set()
    for path in [item for room in ("controlplane", "gateway", "kvstore") for item in (ROOT / room).rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id == "env"
                and node.args
                and isinstance(node.args[0], ast.Constant)
            ):
                names.add(node.args[0].value)
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                names |= set(re.findall(r"^HEADWAY_[A-Z_]+$", node.value))
    return names


def test_example_lists_exactly_the_variables_in_use_each_with_a_meaning() -> None:
    lines = (ROOT / ".env.example").read_text().splitlines()
    listed = {}
    for before, line in itertools.pairwise(lines):
        if "=" in line and not line.startswith("#"):
            listed[line.partition("=")[0]] = before
    assert set(listed) == variables_read() - NO_SETTINGS
    assert all(before.startswith("# ") and before.endswith(".") for before in listed.values())


@pytest.mark.parametrize(
    ("value", "expected"), [("1", True), ("Yes", True), ("off", False), ("FALSE", False), ("", True)]
)
def test_flags_are_parsed(monkeypatch: pytest.MonkeyPatch, value: str, expected: bool) -> None:
    monkeypatch.setenv("A_FLAG", value)
    assert Environment().flag("A_FLAG", default=True) is expected


def test_invalid_choice_error_lists_the_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_CHOICE", "c")
    with pytest.raises(ImproperlyConfigured, match="a, b"):
        Environment().choice("A_CHOICE", default="a", choices=("a", "b"))


def test_content_security_policy_allows_nothing_inline_and_no_other_origin() -> None:
    directives = settings.CONTENT_SECURITY_POLICY["DIRECTIVES"]
    assert {str(value) for values in directives.values() for value in values if value is not NONCE} == {
        "'self'", "'none'", "data:"
    }  # fmt: skip
    # The editor's styles have the page's nonce; scripts have none.
    assert [name for name, values in directives.items() if NONCE in values] == ["style-src"]
    assert directives["img-src"] == ["'self'", "data:"]
    for directive in ("object-src", "base-uri", "frame-ancestors"):
        assert directives[directive] == ["'none'"]


def test_jobs_never_run_inside_requests_and_carry_only_json() -> None:
    assert not settings.CELERY_TASK_ALWAYS_EAGER
    assert settings.CELERY_ACCEPT_CONTENT == ["json"]


def test_engines_have_no_allowed_network_by_default(tmp_path: Path) -> None:
    program = "from controlplane.project import settings as s; print(s.ENGINE_NETWORKS)"
    env = {"PATH": os.environ["PATH"], "HEADWAY_STATE_DIR": str(tmp_path)}
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=env, capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "()"
