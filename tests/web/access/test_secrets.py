"""The page under Access that shows which process uses which secret."""

from __future__ import annotations

import time

import pytest
from django.test import Client

from controlplane.platform.bus import get_bus
from controlplane.secret_rotation.holders import holder_questions
from gateway.bus.secret_answers import SecretAnswers
from kvstore.keys.keyring import Keyring
from tests.page_text import page_text
from tests.web.access.access_world import admin, fresh

__all__ = ["admin", "fresh"]
pytestmark = pytest.mark.django_db
OLD, NEW = "the fleet secret before a rotation", "the fleet secret after a rotation"


@pytest.fixture(autouse=True)
def secrets(settings: object, fresh: None) -> None:
    settings.FLEET_SECRET, settings.FLEET_SECRET_ALSO = NEW.encode(), OLD.encode()
    holder_questions.cache_clear()


def test_page_shows_fingerprints_per_process_and_users_of_the_old_secret(admin: Client) -> None:
    old, new = (Keyring.of(secret.encode()).used for secret in (OLD, NEW))
    late = Keyring.of(OLD.encode(), NEW.encode())
    current = Keyring.of(NEW.encode(), OLD.encode(), wall=time.time)
    accepted = old.derive("bus messages")
    current.keys("bus messages").matching(lambda key: key == accepted, "gateways/b/<script>")
    SecretAnswers(get_bus(), "gateway", "a:8000", [current, None], lambda: time.time() - 7200)
    SecretAnswers(get_bus(), "jobs", "b:7", [late], time.time)
    shown = page_text(admin.get("/access/secrets"))
    for text in (
        f"uses {new.fingerprint}, also accepts {old.fingerprint}",
        f"Do not use {new.fingerprint} yet: jobs b:7.",
        f"Gateway a:8000 accepted bus messages of gateways/b/&lt;script&gt; by {old.fingerprint}",
        "1 secret under rotation",
        "2 processes reported",
    ):
        assert text in shown, text
    assert OLD not in shown
    assert NEW not in shown
    assert "<script>alert" not in shown


def test_page_reports_that_no_rotation_is_in_progress(admin: Client, settings: object) -> None:
    settings.FLEET_SECRET_ALSO = b""
    shown = page_text(admin.get("/access/secrets"))
    assert "No secret is under rotation" in shown
    assert "No process has reported" in shown
