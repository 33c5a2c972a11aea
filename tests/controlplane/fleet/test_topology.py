"""Regions, pools, and tenants change in the same way: roles, validation, audit, and publication."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User

from controlplane.access.api_keys import create_api_key
from controlplane.access.models.role_grant import RoleGrant
from controlplane.fleet import topology
from controlplane.fleet.models.pool import Pool
from controlplane.fleet.models.region import Region
from controlplane.platform.actor import CONSOLE, Actor, person, program
from controlplane.platform.field_problems import InvalidFieldsError
from controlplane.platform.models.api_key import ApiKey
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.models.tenant import Tenant
from controlplane.platform.recorded_change import InUseError
from controlplane.platform.revisions import StaleRevisionError
from controlplane.platform.role import Role
from controlplane.platform.roles import NotAllowedError
from controlplane.policies.models.policy import Policy
from controlplane.publication.snapshot import build_snapshot
from gateway.bus.bus import Bus

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("bus")]
ACTOR = program("test")


def test_new_pool_is_published_and_audited(region: Region, policy: Policy) -> None:
    before = build_snapshot(at=0.0).version
    pool = topology.create_pool("p-1", "One", region, "m", policy, actor=ACTOR, why="more", isolated=True)
    snapshot = build_snapshot(at=0.0)
    assert snapshot.version == before + 1
    assert [(entry.pool_id, entry.isolated) for entry in snapshot.pools] == [("p-1", True)]
    event = AuditEvent.objects.get()
    assert (event.verb, event.object_kind, event.object_id, event.pool_slug) == ("pool.create", "pool", "p-1", "p-1")
    assert (event.before, event.after["region"], event.after["policy"], event.why) == (None, "here", "p", "more")
    assert pool.revision == 1


def test_first_tenant_keeps_the_unsalted_cache_domain(region: Region, policy: Policy) -> None:
    zed = topology.create_tenant("zed", "Zed", actor=ACTOR)
    acme = topology.create_tenant("acme", "Acme", actor=ACTOR)
    topology.create_pool("p-1", "One", region, "m", policy, actor=ACTOR)
    for tenant in (acme, zed):
        create_api_key(tenant, "k", actor=ACTOR)
    assert (zed.unsalted, acme.unsalted) == (True, False)
    assert [entry.unsalted_tenant for entry in build_snapshot(at=0.0).pools] == ["zed"]
    ApiKey.objects.all().delete()
    topology.delete_tenant(zed, actor=ACTOR)
    assert not topology.create_tenant("zed", "Zed", actor=ACTOR).unsalted


def test_pools_created_once_there_are_two_tenants_isolate_them(region: Region, policy: Policy) -> None:
    topology.create_tenant("acme", "Acme", actor=ACTOR)
    before = topology.create_pool("before", "B", region, "m", policy, actor=ACTOR)
    topology.create_tenant("zed", "Zed", actor=ACTOR)
    after = topology.create_pool("after", "A", region, "n", policy, actor=ACTOR)
    asked = topology.create_pool("asked", "A", region, "o", policy, actor=ACTOR, isolated=False)
    before.refresh_from_db()
    assert (before.isolated, after.isolated, asked.isolated) == (False, True, False)


def test_models_of_a_tenant_are_audited_and_reach_the_gateway(tenant: Tenant) -> None:
    create_api_key(tenant, "k", actor=ACTOR)
    topology.change_tenant(tenant, {"served_models": ["m-8b", "a", "a"]}, actor=ACTOR)
    (entry,) = build_snapshot(at=0.0).api_keys
    assert entry.served_models == ("a", "m-8b")
    event = AuditEvent.objects.get(verb="tenant.change")
    assert (event.before["served_models"], event.after["served_models"]) == ([], ["a", "m-8b"])
    for wrong in ("m", [5], [""], ["m"] * 101):
        with pytest.raises(InvalidFieldsError):
            topology.change_tenant(tenant, {"served_models": wrong}, actor=ACTOR)


def test_change_raises_the_revision_and_audits_both_versions(pool: Pool) -> None:
    changed = topology.change_pool(pool, {"block_tokens": 16}, actor=ACTOR, expected=1)
    assert (changed.revision, changed.block_tokens, pool.block_tokens) == (2, 16, 16)
    event = AuditEvent.objects.get()
    assert (event.before["block_tokens"], event.after["block_tokens"]) == (512, 16)
    assert (event.before["revision"], event.after["revision"]) == (1, 2)


def test_change_of_an_old_revision_is_rejected(pool: Pool) -> None:
    topology.change_pool(Pool.objects.get(), {"name": "Theirs"}, actor=ACTOR)
    with pytest.raises(StaleRevisionError) as caught:
        topology.change_pool(pool, {"name": "Mine"}, actor=ACTOR, expected=1)
    assert (caught.value.current.name, caught.value.current.revision) == ("Theirs", 2)
    assert Pool.objects.get().name == "Theirs"


def test_change_without_effect_is_not_audited(region: Region) -> None:
    topology.change_region(region, {"name": region.name}, actor=ACTOR)
    assert not AuditEvent.objects.exists()
    assert Region.objects.get().revision == 1


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"slug": "other"}, "slug"),
        ({"block_tokens": 0}, "block_tokens"),
        ({"max_prompt_tokens": -1}, "max_prompt_tokens"),
        ({"served_model": ""}, "served_model"),
        ({"name": "a\nb"}, "name"),
        ({"name": "a\u2028b"}, "name"),
        ({"name": "a\x00b"}, "name"),
        ({"name": "x" * 121}, "name"),
        ({"key_source": "guess"}, "key_source"),
    ],
)
def test_invalid_value_is_reported_and_nothing_is_stored(pool: Pool, changes: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidFieldsError) as caught:
        topology.change_pool(pool, changes, actor=ACTOR)
    assert [problem.path for problem in caught.value.problems] == [path]
    assert Pool.objects.get().revision == 1
    assert not AuditEvent.objects.exists()


def test_all_invalid_values_are_reported_together(region: Region, policy: Policy) -> None:
    with pytest.raises(InvalidFieldsError) as caught:
        topology.create_pool("no slug", "", region, "", policy, actor=ACTOR, block_tokens=0)
    paths = {problem.path for problem in caught.value.problems}
    assert paths == {"slug", "name", "served_model", "block_tokens"}


def test_slug_in_use_is_reported(region: Region) -> None:
    with pytest.raises(InvalidFieldsError, match="slug: Region with this Slug already exists"):
        topology.create_region("here", "Again", actor=ACTOR)


def test_objects_in_use_are_not_deleted(region: Region, pool: Pool) -> None:
    with pytest.raises(InUseError, match="region here is used by pool chat"):
        topology.delete_region(region, actor=ACTOR)
    topology.delete_pool(pool, actor=ACTOR, expected=1)
    topology.delete_region(region, actor=ACTOR)
    assert list(AuditEvent.objects.order_by("pk").values_list("verb", flat=True)) == ["pool.delete", "region.delete"]


@pytest.mark.parametrize("role", [None, Role.VIEWER, Role.OPERATOR])
def test_only_admins_change_the_topology(region: Region, pool: Pool, tenant: Tenant, role: Role | None) -> None:
    user = User.objects.create(username="u")
    if role:
        RoleGrant.objects.create(user=user, role=role)
    actor = person(user, via=CONSOLE)
    for attempt in (
        lambda who: topology.create_region("x", "X", actor=who),
        lambda who: topology.change_region(region, {"name": "X"}, actor=who),
        lambda who: topology.delete_region(region, actor=who),
        lambda who: topology.create_pool("x", "X", region, "m", pool.policy, actor=who),
        lambda who: topology.change_pool(pool, {"name": "X"}, actor=who),
        lambda who: topology.delete_pool(pool, actor=who),
        lambda who: topology.create_tenant("x", "X", actor=who),
        lambda who: topology.change_tenant(tenant, {"name": "X"}, actor=who),
        lambda who: topology.delete_tenant(tenant, actor=who),
    ):
        with pytest.raises(NotAllowedError, match="role admin"):
            attempt(actor)
    assert not AuditEvent.objects.exists()


def test_key_acts_with_its_own_role(region: Region, bus: Bus) -> None:
    with pytest.raises(NotAllowedError):
        topology.change_region(region, {"name": "X"}, actor=Actor("key ci", "api", role=Role.OPERATOR))
    topology.change_region(region, {"name": "X"}, actor=Actor("key ci", "api", role=Role.ADMIN))
    assert AuditEvent.objects.get().actor_name == "key ci"
