"""Unsafe mixtures of settings are refused."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.checks import run_checks
from django.test import override_settings

IN_MEMORY = {"CHANNEL_LAYERS": {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}}
SQLITE = {"ENGINE": "django.db.backends.sqlite3", "NAME": "x"}
GOOD = "kJ3-d8fTq0_vW7xY2zAbCdEfGhIjKlMnOpQrStUv"


def found(**values: Any) -> set[str]:
    with override_settings(**values):
        return {str(message.id) for message in run_checks() if str(message.id).startswith("switchyard.")}


def test_the_defaults_are_safe() -> None:
    assert found() == set()


@pytest.mark.parametrize(
    ("values", "check"),
    [
        ({"PROCESSES": 2}, "switchyard.E001"),
        ({"REDIS_URL": "redis://r", "PROCESSES": 2, "CELERY_BROKER_URL": "memory://"}, "switchyard.E001"),
        ({"REDIS_URL": "redis://r", "PROCESSES": 2, "CELERY_BROKER_URL": "redis://r", **IN_MEMORY}, "switchyard.E001"),
        ({"REDIS_URL": "redis://r"}, "switchyard.E002"),
        ({"DEBUG": True, "LOOPBACK_ONLY": False, "SECRET_KEY": GOOD}, "switchyard.E003"),
        ({"LOOPBACK_ONLY": False, "SECRET_KEY": "django-insecure-" + GOOD}, "switchyard.E004"),
        ({"LOOPBACK_ONLY": False, "SECRET_KEY": "changeme"}, "switchyard.E004"),
        ({"LOOPBACK_ONLY": False, "SECRET_KEY": GOOD, "FLEET_SECRET": b"x" * 64}, "switchyard.E004"),
        ({"DATABASES": {"default": SQLITE}}, "switchyard.E005"),
        ({"DATABASES": {"default": {**SQLITE, "OPTIONS": {"transaction_mode": "DEFERRED"}}}}, "switchyard.E005"),
    ],
)
@pytest.mark.filterwarnings("ignore:Overriding setting DATABASES")
def test_an_unsafe_mix_is_refused(values: dict[str, Any], check: str) -> None:
    assert check in found(**values)


def test_strong_secrets_pass_outside_loopback() -> None:
    assert "switchyard.E004" not in found(LOOPBACK_ONLY=False, SECRET_KEY=GOOD, FLEET_SECRET=GOOD.encode())
