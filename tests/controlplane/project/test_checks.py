"""Unsafe combinations of settings are rejected."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.checks import run_checks
from django.test import override_settings

from controlplane.project.checks import UnsafeSettingsError, reject_unsafe

SHARED = {
    "REDIS_URL": "redis://r:6379/0",
    "SECRETS_GIVEN": True,
    "PROCESSES": 4,
}
SQLITE = {"ENGINE": "django.db.backends.sqlite3", "NAME": "x"}
GOOD = "kJ3-d8fTq0_vW7xY2zAbCdEfGhIjKlMnOpQrStUv"


def rejected_by(**values: Any) -> set[str]:
    with override_settings(**values):
        return {str(message.id) for message in run_checks() if str(message.id).startswith("headway.")}


def test_defaults_are_safe() -> None:
    assert rejected_by() == set()


@pytest.mark.parametrize(
    ("values", "check"),
    [
        ({"PROCESSES": 2}, "headway.E001"),
        ({"REDIS_URL": "localhost:6379"}, "headway.E002"),
        ({"REDIS_URL": "http://r"}, "headway.E002"),
        ({"REDIS_URL": "redis://"}, "headway.E002"),
        ({"PROCESSES": 2, "REDIS_URL": "redis://r", "SECRETS_GIVEN": False}, "headway.E006"),
        ({"DEBUG": True, "LOOPBACK_ONLY": False, "SECRET_KEY": GOOD}, "headway.E003"),
        ({"LOOPBACK_ONLY": False, "SECRET_KEY": "django-insecure-" + GOOD}, "headway.E004"),
        ({"LOOPBACK_ONLY": False, "SECRET_KEY": "changeme"}, "headway.E004"),
        ({"LOOPBACK_ONLY": False, "SECRET_KEY": GOOD, "FLEET_SECRET": b"x" * 64}, "headway.E004"),
        ({"LOOPBACK_ONLY": False, "SECRET_KEY": GOOD, "FLEET_SECRET_ALSO": b"changeme"}, "headway.E004"),
        ({"LOOPBACK_ONLY": False, "SECRET_KEY": GOOD, "SECRET_KEY_FALLBACKS": ["changeme"]}, "headway.E004"),
        ({"DATABASES": {"default": SQLITE}}, "headway.E005"),
        ({"DATABASES": {"default": {**SQLITE, "OPTIONS": {"transaction_mode": "DEFERRED"}}}}, "headway.E005"),
    ],
)
@pytest.mark.filterwarnings("ignore:Overriding setting DATABASES")
def test_unsafe_combination_is_rejected(values: dict[str, Any], check: str) -> None:
    assert check in rejected_by(**values)


def test_strong_secrets_are_accepted_outside_loopback() -> None:
    assert "headway.E004" not in rejected_by(LOOPBACK_ONLY=False, SECRET_KEY=GOOD, FLEET_SECRET=GOOD.encode())


@pytest.mark.parametrize("url", ["redis://h", "rediss://u:p@h:1/2", "unix:///run/redis.sock"])
def test_several_processes_pass_if_they_share_everything(url: str) -> None:
    assert rejected_by(**{**SHARED, "REDIS_URL": url}) == set()


def test_server_started_without_manage_py_is_rejected_with_every_reason() -> None:
    reject_unsafe()
    with (
        override_settings(PROCESSES=2, SECRETS_GIVEN=False, DEBUG=True, LOOPBACK_ONLY=False, SECRET_KEY=GOOD),
        pytest.raises(UnsafeSettingsError) as rejected,
    ):
        reject_unsafe()
    for part in ("their own bus", "HEADWAY_DEBUG", "Set REDIS_URL", "HEADWAY_FLEET_SECRET"):
        assert part in str(rejected.value)
