"""API keys are stored as hashes only."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from django.core import serializers

from controlplane.access.api_keys import change_api_key, create_api_key, revoke_api_key
from controlplane.fleet.models.pool import Pool
from controlplane.fleet.visibility import visible_pools
from controlplane.platform.actor import Actor, machine, program
from controlplane.platform.field_problems import InvalidFieldsError
from controlplane.platform.models.api_key import ApiKey
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.models.tenant import Tenant
from controlplane.platform.role import Role
from controlplane.platform.roles import NotAllowedError, may, may_somewhere
from controlplane.publication.snapshot import build_snapshot
from gateway.bus.bus import Bus

ACTOR = program("test")
pytestmark = pytest.mark.django_db


def test_key_is_random_and_stored_only_as_a_hash(tenant: Tenant, bus: Bus) -> None:
    key, text = create_api_key(tenant, "ci", actor=ACTOR)
    _, other = create_api_key(tenant, "ci", actor=ACTOR)
    assert text != other
    assert text.startswith("hw_")
    assert len(text) == 46
    assert text.startswith(key.prefix)
    assert key.sha256 == hashlib.sha256(text.encode()).hexdigest()


def test_database_dump_holds_no_usable_key(tenant: Tenant, bus: Bus) -> None:
    _, text = create_api_key(tenant, "ci", actor=ACTOR)
    dump = json.dumps(serializers.serialize("python", ApiKey.objects.all()), default=str)
    assert text not in dump
    assert text[12:] not in dump


def test_revoked_key_is_removed_from_the_snapshot(tenant: Tenant, bus: Bus) -> None:
    key, _ = create_api_key(tenant, "ci", actor=ACTOR)
    before = build_snapshot(at=0.0)
    assert [entry.tenant_id for entry in before.api_keys] == ["acme"]
    assert revoke_api_key(key, actor=ACTOR)
    after = build_snapshot(at=0.0)
    assert after.api_keys == ()
    assert after.version > before.version


def test_revoking_twice_changes_nothing(tenant: Tenant, bus: Bus) -> None:
    key, _ = create_api_key(tenant, "ci", actor=ACTOR)
    assert revoke_api_key(key, actor=ACTOR)
    version = build_snapshot(at=0.0).version
    assert not revoke_api_key(key, actor=ACTOR)
    assert build_snapshot(at=0.0).version == version


def test_new_key_has_only_the_inference_scope(tenant: Tenant) -> None:
    key, _ = create_api_key(tenant, "ci", actor=ACTOR)
    assert (key.scopes, ApiKey().scopes) == (["infer"], ["infer"])


def test_scopes_and_limits_reach_the_gateway(tenant: Tenant, bus: Bus) -> None:
    key, _ = create_api_key(tenant, "ci", actor=ACTOR, scopes=("manage", "infer"), rate_per_min=60, max_in_flight=4)
    change_api_key(key, {"max_in_flight": None}, actor=ACTOR, expected=1)
    (entry,) = build_snapshot(at=0.0).api_keys
    assert (entry.scopes, entry.rate_per_min, entry.max_in_flight) == (("infer", "manage"), 60, None)


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"scopes": []}, "scopes"),
        ({"scopes": ["everything"]}, "scopes"),
        ({"scopes": "infer"}, "scopes"),
        ({"scopes": [["infer"]]}, "scopes"),
        ({"rate_per_min": 0}, "rate_per_min"),
        ({"max_in_flight": 1_000_000}, "max_in_flight"),
        ({"role": "owner"}, "role"),
        ({"sha256": "x"}, "sha256"),
        ({"revoked_at": None}, "revoked_at"),
    ],
)
def test_invalid_key_settings_are_reported_by_field(
    tenant: Tenant, bus: Bus, change: dict[str, Any], path: str
) -> None:
    key, _ = create_api_key(tenant, "ci", actor=ACTOR)
    with pytest.raises(InvalidFieldsError) as caught:
        change_api_key(key, change, actor=ACTOR)
    assert [problem.path for problem in caught.value.problems] == [path]
    assert ApiKey.objects.get().revision == 1


def test_revoked_key_cannot_be_restored(tenant: Tenant, bus: Bus) -> None:
    key, _ = create_api_key(tenant, "ci", actor=ACTOR)
    revoke_api_key(key, actor=ACTOR, why="leaked")
    with pytest.raises(InvalidFieldsError, match="revoked"):
        change_api_key(key, {"name": "back"}, actor=ACTOR)


def test_audit_of_a_key_holds_neither_text_nor_hash(tenant: Tenant, bus: Bus) -> None:
    key, text = create_api_key(tenant, "ci", actor=ACTOR, why="for ci")
    revoke_api_key(key, actor=ACTOR)
    recorded = json.dumps([[event.before, event.after] for event in AuditEvent.objects.all()])
    assert text[11:] not in recorded
    assert key.sha256 not in recorded
    assert key.key_id in recorded


def test_only_admins_create_keys(tenant: Tenant, bus: Bus) -> None:
    with pytest.raises(NotAllowedError):
        create_api_key(tenant, "ci", actor=Actor("key x", "api", role=Role.OPERATOR))
    assert not ApiKey.objects.exists()


def test_key_for_named_pools_works_only_in_those_pools(pool: Pool, tenant: Tenant, bus: Bus) -> None:
    key, _ = create_api_key(tenant, "ci", actor=ACTOR, scopes=("manage",), role=Role.OPERATOR, pools=(pool.slug,))
    actor = machine(key)
    assert may(actor, Role.OPERATOR, pool)
    assert not may(actor, Role.VIEWER)
    assert may_somewhere(actor, Role.OPERATOR)
    assert not may_somewhere(actor, Role.ADMIN)
    assert list(visible_pools(actor)) == [pool]


def test_key_works_in_all_pools_only_if_all_pools_are_selected(pool: Pool, tenant: Tenant, bus: Bus) -> None:
    key, _ = create_api_key(tenant, "ci", actor=ACTOR, scopes=("manage",), role=Role.OPERATOR)
    nowhere = machine(key)
    assert not may(nowhere, Role.VIEWER)
    assert not may(nowhere, Role.VIEWER, pool)
    assert not may_somewhere(nowhere, Role.VIEWER)
    assert list(visible_pools(nowhere)) == []
    change_api_key(key, {"pools": ["*"]}, actor=ACTOR)
    assert may(machine(key), Role.OPERATOR)
    change_api_key(key, {"pools": [], "role": Role.ADMIN}, actor=ACTOR)
    assert may(machine(key), Role.ADMIN, pool)
    with pytest.raises(InvalidFieldsError, match="all pools, or some"):
        change_api_key(key, {"pools": ["*", pool.slug], "role": Role.VIEWER}, actor=ACTOR)


def test_key_for_deleted_pools_grants_access_to_no_other_pool(pool: Pool, tenant: Tenant, bus: Bus) -> None:
    key, _ = create_api_key(tenant, "ci", actor=ACTOR, scopes=("manage",), role=Role.OPERATOR, pools=(pool.slug,))
    Pool.objects.all().delete()
    change_api_key(key, {"name": "still", "pools": [pool.slug]}, actor=ACTOR)
    assert not may(machine(key), Role.VIEWER)
    assert list(visible_pools(machine(key))) == []


@pytest.mark.parametrize(
    ("role", "pools", "sentence"),
    [(Role.ADMIN, "real", "An admin acts in all pools"), (Role.VIEWER, "zzz", "No such pool: zzz")],
)
def test_invalid_pools_of_a_key_are_rejected(
    pool: Pool, tenant: Tenant, bus: Bus, role: Role, pools: str, sentence: str
) -> None:
    named = [pool.slug if pools == "real" else pools]
    with pytest.raises(InvalidFieldsError, match=sentence):
        create_api_key(tenant, "ci", actor=ACTOR, scopes=("manage",), role=role, pools=named)
    key, _ = create_api_key(tenant, "ci", actor=ACTOR, scopes=("manage",), role=role)
    with pytest.raises(InvalidFieldsError, match=sentence):
        change_api_key(key, {"pools": named}, actor=ACTOR)


def test_origins_are_normalized_as_browsers_send_them_and_published(tenant: Tenant, bus: Bus) -> None:
    key, _ = create_api_key(tenant, "chat", actor=ACTOR, origins=["https://Chat.example.com", "http://localhost:8090"])
    assert key.origins == ["http://localhost:8090", "https://chat.example.com"]
    assert build_snapshot(at=0.0).api_keys[0].origins == tuple(key.origins)
    change_api_key(key, {"origins": []}, actor=ACTOR)
    assert build_snapshot(at=0.0).api_keys[0].origins == ()


@pytest.mark.parametrize(
    "origin",
    ["*", "null", "chat.example.com", "https://chat.example.com/", "https://a.example/path", "https://*.example", 7],
)
def test_invalid_origins_are_rejected(tenant: Tenant, bus: Bus, origin: Any) -> None:
    with pytest.raises(InvalidFieldsError):
        create_api_key(tenant, "chat", actor=ACTOR, origins=[origin])
