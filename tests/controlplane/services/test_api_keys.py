"""API keys are stored as hashes only."""

from __future__ import annotations

import hashlib
import json

import pytest
from django.core import serializers

from controlplane.models import ApiKey, Tenant
from controlplane.services.api_keys import create_api_key, revoke_api_key
from controlplane.services.publication import build_snapshot
from gateway.bus import Bus

pytestmark = pytest.mark.django_db


def test_a_key_is_random_and_known_only_by_its_hash(tenant: Tenant, bus: Bus) -> None:
    key, text = create_api_key(tenant, "ci")
    _, other = create_api_key(tenant, "ci")
    assert text != other
    assert text.startswith("sy_")
    assert len(text) == 46
    assert text.startswith(key.prefix)
    assert key.sha256 == hashlib.sha256(text.encode()).hexdigest()


def test_a_dump_of_the_database_holds_no_usable_key(tenant: Tenant, bus: Bus) -> None:
    _, text = create_api_key(tenant, "ci")
    dump = json.dumps(serializers.serialize("python", ApiKey.objects.all()), default=str)
    assert text not in dump
    assert text[12:] not in dump


def test_a_revoked_key_leaves_the_snapshot(tenant: Tenant, bus: Bus) -> None:
    key, _ = create_api_key(tenant, "ci")
    before = build_snapshot(at=0.0)
    assert [entry.tenant_id for entry in before.api_keys] == ["acme"]
    assert revoke_api_key(key)
    after = build_snapshot(at=0.0)
    assert after.api_keys == ()
    assert after.version > before.version


def test_revoking_twice_changes_nothing(tenant: Tenant, bus: Bus) -> None:
    key, _ = create_api_key(tenant, "ci")
    assert revoke_api_key(key)
    version = build_snapshot(at=0.0).version
    assert not revoke_api_key(key)
    assert build_snapshot(at=0.0).version == version
