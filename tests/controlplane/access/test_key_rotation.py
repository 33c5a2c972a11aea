"""A rotated key has two secrets until the overlap ends: both are accepted, counted apart, and revoked together."""

from __future__ import annotations

import io
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import Client
from django.utils import timezone

from controlplane.access.api_keys import create_api_key, end_previous_secret, revoke_api_key, rotate_api_key
from controlplane.access.key_usage import store_last_uses
from controlplane.access.stored_revocations import store_waiting
from controlplane.platform.actor import Actor, program
from controlplane.platform.field_problems import InvalidFieldsError
from controlplane.platform.models.api_key import ApiKey, hash_api_key
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.models.tenant import Tenant
from controlplane.platform.outage.bus_revocations import bus_revocations, revocation_of
from controlplane.platform.role import Role
from controlplane.platform.roles import NotAllowedError
from controlplane.publication.snapshot import build_snapshot
from gateway.access.authentication import UnauthenticatedError, authenticate
from gateway.bus.bus import Bus
from gateway.contracts.snapshot import PREVIOUS_SECRET, ApiKeyEntry

ACTOR = program("test")
pytestmark = pytest.mark.django_db


class Gateway:
    """The key directory of a gateway that has just received the snapshot."""

    def __init__(self) -> None:
        entries = build_snapshot(at=timezone.now().timestamp()).api_keys
        self.keys = {entry.sha256: entry for entry in entries}
        self.by_id = {entry.key_id: entry for entry in entries}

    def api_key(self, sha256: str) -> ApiKeyEntry | None:
        return self.keys.get(sha256)

    def accepts(self, text: str, *, hours: float = 0) -> str:
        """Return the usage id of the key with this text so many hours from now; empty if it is rejected."""
        try:
            unix = timezone.now().timestamp() + hours * 3600
            return authenticate(f"Bearer {text}".encode(), self, unix).usage_id
        except UnauthenticatedError:
            return ""


@pytest.fixture
def made(tenant: Tenant, bus: Bus) -> tuple[ApiKey, str]:
    return create_api_key(tenant, "ci", actor=ACTOR, scopes=["manage"], role="admin", rate_per_min=60)


def test_both_secrets_are_accepted_until_the_overlap_ends(made: tuple[ApiKey, str]) -> None:
    key, old = made
    _, new = rotate_api_key(key, actor=ACTOR, overlap_h=2)
    gateway = Gateway()
    assert gateway.accepts(new) == gateway.accepts(new, hours=99) == key.key_id
    assert gateway.accepts(old) == gateway.accepts(old, hours=1.9) == key.key_id + PREVIOUS_SECRET
    assert gateway.accepts(old, hours=2.1) == ""
    assert gateway.by_id[key.key_id].sha256 == hash_api_key(new)
    assert {entry.rate_per_min for entry in gateway.keys.values()} == {60}
    event = AuditEvent.objects.get(verb="key.rotate")
    assert new not in str(event.after)
    assert hash_api_key(old) not in str(event.before)


def test_the_previous_secret_never_outlives_the_key(made: tuple[ApiKey, str]) -> None:
    key, old = made
    ApiKey.objects.update(expires_at=timezone.now() + timedelta(hours=1))
    rotate_api_key(key, actor=ACTOR, overlap_h=24)
    assert Gateway().accepts(old, hours=0.9)
    assert not Gateway().accepts(old, hours=1.1)


def test_a_second_rotation_ends_the_first_secret(made: tuple[ApiKey, str]) -> None:
    key, first = made
    _, second = rotate_api_key(key, actor=ACTOR)
    _, third = rotate_api_key(key, actor=ACTOR)
    assert [bool(Gateway().accepts(text)) for text in (first, second, third)] == [False, True, True]


def test_the_management_api_accepts_both_and_rejects_an_ended_one(made: tuple[ApiKey, str]) -> None:
    key, old = made
    answer = Client().post(
        f"/api/v1/keys/{key.key_id}/rotate",
        '{"overlap_h": 1, "why": "yearly"}',
        content_type="application/json",
        headers={"Authorization": f"Bearer {old}"},
    )
    new = answer.json()["text"]

    def statuses() -> list[int]:
        return [
            Client(headers={"Authorization": f"Bearer {text}"}).get("/api/v1/pools").status_code for text in (old, new)
        ]

    assert statuses() == [200, 200]
    key.refresh_from_db()
    assert end_previous_secret(key, actor=ACTOR)
    assert not end_previous_secret(key, actor=ACTOR)
    assert statuses() == [401, 200]
    assert not Gateway().accepts(old)


def test_revoking_the_key_ends_both_secrets(made: tuple[ApiKey, str]) -> None:
    key, old = made
    _, new = rotate_api_key(key, actor=ACTOR)
    revoke_api_key(key, actor=ACTOR)
    assert [Gateway().accepts(text) for text in (old, new)] == ["", ""]
    with pytest.raises(InvalidFieldsError, match="revoked"):
        rotate_api_key(key, actor=ACTOR)


def test_a_revocation_of_the_previous_secret_over_the_bus_revokes_the_key(made: tuple[ApiKey, str]) -> None:
    key, old = made
    rotate_api_key(key, actor=ACTOR)
    bus_revocations().publish(revocation_of(hash_api_key(old), key.key_id, actor=ACTOR))
    assert store_waiting(bus_revocations()) == 1
    key.refresh_from_db()
    assert key.revoked_at is not None


def test_uses_of_the_secrets_are_stored_apart(made: tuple[ApiKey, str]) -> None:
    key, _ = made
    now = timezone.now()
    store_last_uses({key.key_id: now - timedelta(minutes=9)}, now)
    rotate_api_key(key, actor=ACTOR)
    key.refresh_from_db()
    assert (key.last_used_at, key.previous_used_at) == (None, now - timedelta(minutes=9))
    # A gateway reports the old secret under the key's name until it has the snapshot.
    store_last_uses({key.key_id: now}, now)
    later = now + timedelta(minutes=1)
    store_last_uses({key.key_id: later, key.key_id + PREVIOUS_SECRET: now}, later)
    key.refresh_from_db()
    assert (key.last_used_at, key.previous_used_at) == (later, now)


def test_only_admins_rotate_and_the_overlap_has_a_limit(made: tuple[ApiKey, str]) -> None:
    key, _ = made
    with pytest.raises(NotAllowedError):
        rotate_api_key(key, actor=Actor("otto", "api", role=Role.OPERATOR))
    for hours in (-1, 721):
        with pytest.raises(InvalidFieldsError):
            rotate_api_key(key, actor=ACTOR, overlap_h=hours)


def test_command_prints_only_the_new_secret(made: tuple[ApiKey, str]) -> None:
    key, old = made
    options = ("--rotate", key.key_id, "--overlap-hours", "0")
    call_command("create_api_key", *options, stdout=(out := io.StringIO()))
    assert Gateway().accepts(out.getvalue().strip()) == key.key_id
    assert not Gateway().accepts(old)
    assert ApiKey.objects.count() == 1
    with pytest.raises(CommandError, match="No key"):
        call_command("create_api_key", "--rotate", "key-unknown")
