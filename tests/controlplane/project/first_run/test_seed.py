"""An empty installation is filled once. Later starts keep existing objects."""

from __future__ import annotations

import socket
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from django.contrib.auth import authenticate, get_user_model
from django.utils import timezone

from controlplane.fleet.loopback_ports import is_free
from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool
from controlplane.platform.models.api_key import ApiKey, hash_api_key
from controlplane.platform.models.tenant import Tenant
from controlplane.policies.models.policy import Policy
from controlplane.project.first_run import seed as first_run
from controlplane.project.first_run.secrets import FirstRunSecrets, secrets_of
from controlplane.publication.snapshot import build_snapshot
from gateway.bus.bus import Bus

pytestmark = pytest.mark.django_db
PORTS_FROM = 18440


@pytest.fixture
def secrets(tmp_path: Path, bus: Bus) -> FirstRunSecrets:
    return secrets_of(tmp_path)


def test_first_start_creates_a_login_and_a_live_policy_but_no_api_key(
    secrets: FirstRunSecrets,
) -> None:
    first_run.seed(secrets)
    assert authenticate(username="admin", password=secrets.admin_password) is not None
    assert not ApiKey.objects.exists()
    assert not Tenant.objects.exists()
    live = Policy.objects.get().live_version
    assert live is not None
    assert live.routing_document["placement"]["name"] == "least_cost"
    assert live.routing_document["order"] == {"name": "late_last", "params": {"forget_blocks": True}}


def test_demo_has_a_tenant_and_a_key(secrets: FirstRunSecrets) -> None:
    first_run.seed(secrets, demo=True)
    assert ApiKey.objects.get().sha256 == hash_api_key(secrets.api_key)
    assert Tenant.objects.get().slug == "demo"


def test_demo_has_three_tenants_with_unequal_shares_of_the_traffic(secrets: FirstRunSecrets) -> None:
    assert secrets.traffic_keys == secrets.api_key
    kept = first_run.refilled(secrets, demo=True)
    assert first_run.refilled(kept, demo=True).more_api_keys == kept.more_api_keys
    first_run.seed(kept, demo=True)
    first_run.seed(kept, demo=True)
    tenants = Counter(hash_api_key(key) for key in kept.traffic_keys.split(","))
    parts = {slug: tenants[sha] for slug, sha in ApiKey.objects.values_list("tenant__slug", "sha256")}
    assert parts == {"demo": 6, "acme": 3, "lumen": 1}


def test_unneeded_or_used_secrets_are_not_kept_in_clear_text(secrets: FirstRunSecrets) -> None:
    first_run.seed(secrets)
    needed = first_run.still_valid(secrets)
    assert (needed.admin_password, needed.api_key) == (secrets.admin_password, "")
    assert first_run.without_used(needed) == needed
    get_user_model().objects.update(last_login=timezone.now())
    assert first_run.without_used(needed).admin_password == ""
    assert first_run.without_used(needed).secret_key == secrets.secret_key


def test_missing_secrets_are_created_again_only_if_needed(secrets: FirstRunSecrets) -> None:
    empty = msgspec.structs.replace(secrets, admin_password="", api_key="")
    filled = first_run.refilled(empty, demo=True)
    assert len(filled.admin_password) >= 16
    assert filled.api_key.startswith("hw_")
    first_run.seed(filled, demo=True)
    assert first_run.refilled(empty, demo=False) == empty


def test_first_run_secrets_are_valid_until_they_are_changed(secrets: FirstRunSecrets) -> None:
    first_run.seed(secrets, demo=True)
    assert first_run.still_valid(secrets) == secrets
    admin = get_user_model().objects.get()
    admin.set_password("another one, and longer")
    admin.save()
    ApiKey.objects.update(revoked_at=timezone.now())
    first_run.seed(secrets)
    assert first_run.still_valid(secrets) == msgspec.structs.replace(secrets, admin_password="", api_key="")


def test_demo_pool_has_eight_engines_at_different_free_ports(secrets: FirstRunSecrets) -> None:
    first_run.seed(secrets)
    engines = first_run.seed_demo_pool(ports_from=PORTS_FROM)
    assert [engine.engine_id for engine in engines] == [f"e-{number:02d}" for number in range(1, 9)]
    ports = [port for engine in engines for port in first_run.engine_ports(engine)]
    assert len(set(ports)) == 24
    assert all(port >= PORTS_FROM and is_free(port) for port in ports)
    (pool,) = build_snapshot(at=0.0).pools
    assert (pool.served_model, pool.key_source, pool.block_tokens) == ("demo-8b", "exact", 512)
    assert pool.policy_version == 1


def test_second_start_changes_nothing(secrets: FirstRunSecrets) -> None:
    first_run.seed(secrets)
    first_run.seed_demo_pool(ports_from=PORTS_FROM)
    before = build_snapshot(at=0.0)
    first_run.seed(secrets)
    first_run.seed_demo_pool(ports_from=PORTS_FROM)
    assert build_snapshot(at=0.0) == before
    assert Pool.objects.count() == 1


def test_engine_whose_port_is_in_use_moves_and_keeps_its_id(
    secrets: FirstRunSecrets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_run, "_RELEASE_S", 0.0)
    first_run.seed(secrets)
    engines = first_run.seed_demo_pool(ports_from=PORTS_FROM)
    old = {engine.engine_id: first_run.engine_ports(engine) for engine in engines}
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", old["e-03"][1]))
        other.listen()
        engines = first_run.seed_demo_pool(ports_from=PORTS_FROM)
    new = {engine.engine_id: first_run.engine_ports(engine) for engine in engines}
    assert [engine_id for engine_id in old if old[engine_id] != new[engine_id]] == ["e-03"]
    assert not set(new["e-03"]) & {port for ports in old.values() for port in ports}
    assert first_run.engine_ports(Engine.objects.get(engine_id="e-03")) == new["e-03"]


def test_revoked_first_key_stays_revoked(secrets: FirstRunSecrets) -> None:
    first_run.seed(secrets)
    ApiKey.objects.update(revoked_at="2030-01-01T00:00:00Z")
    first_run.seed(secrets)
    assert build_snapshot(at=0.0).api_keys == ()


def test_demo_with_roles_has_exactly_the_requested_engines(secrets: FirstRunSecrets) -> None:
    first_run.seed(secrets)
    engines = first_run.seed_demo_pool(ports_from=PORTS_FROM, roles=("prefill", "decode"))
    assert [engine.role for engine in engines] == ["prefill", "decode"]


def test_existing_engines_get_the_roles(secrets: FirstRunSecrets) -> None:
    first_run.seed(secrets)
    first_run.seed_demo_pool(ports_from=PORTS_FROM, roles=("prefill", "decode"))
    more = first_run.seed_demo_pool(ports_from=PORTS_FROM, roles=("prefill", "prefill", "decode"))
    assert [engine.role for engine in more] == ["prefill", "prefill", "decode"]
    kept = first_run.seed_demo_pool(ports_from=PORTS_FROM)
    assert [engine.role for engine in kept] == ["prefill", "prefill", "decode"]
    fewer = first_run.seed_demo_pool(ports_from=PORTS_FROM, roles=("prefill", "decode"))
    assert [engine.role for engine in fewer] == ["prefill", "decode", "mixed"]
