"""People with a role in a pool see only the objects of that pool."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from controlplane.access.audit_search import visible_events
from controlplane.access.models.role_grant import RoleGrant
from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool
from controlplane.fleet.models.region import Region
from controlplane.fleet.visibility import visible_engines, visible_regions
from controlplane.job_runs.reading import visible_runs
from controlplane.platform.actor import CONSOLE, Actor, person, program
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.models.job_run import JobRun, JobState
from controlplane.platform.role import Role
from controlplane.platform.roles import may, may_somewhere
from controlplane.policies.models.policy import Policy
from controlplane.policies.reading import visible_policies

pytestmark = pytest.mark.django_db


@pytest.fixture
def pools(region: Region) -> dict[str, Pool]:
    """Return two pools in two regions with an engine, a policy, an event and a preflight each."""
    pools = {}
    for name, where in (("a", region), ("b", Region.objects.create(slug="there", name="There"))):
        policy = Policy.objects.create(slug=f"policy-{name}", name=name)
        pool = Pool.objects.create(slug=name, name=name, region=where, served_model="m", policy=policy)
        url = f"http://{name}"
        engine = Engine.objects.create(pool=pool, name=name, url=url, connect_url=url, engine_id=f"e-{name}")
        now = timezone.now()
        JobRun.objects.create(job="preflight", shard=engine.pk, state=JobState.DONE, started_at=now, finished_at=now)
        AuditEvent.objects.create(
            at=now, actor_name="x", via="api", verb="v", object_kind="engine", object_id=name, pool_slug=name
        )
        pools[name] = pool
    return pools


def everything(actor: Actor) -> list[list[str]]:
    """Return all objects visible to the actor, by name."""
    return [
        sorted(engine.engine_id for engine in visible_engines(actor)),
        sorted(policy.slug for policy in visible_policies(actor)),
        sorted(region.slug for region in visible_regions(actor)),
        sorted(event.object_id for event in visible_events(actor)),
        sorted(str(run.shard) for run in visible_runs(actor)),
    ]


def test_role_in_one_pool_shows_that_pool(pools: dict[str, Pool]) -> None:
    user = User.objects.create(username="u")
    RoleGrant.objects.create(user=user, role=Role.OPERATOR, pool=pools["a"])
    shard = str(Engine.objects.get(engine_id="e-a").pk)
    assert everything(person(user, via=CONSOLE)) == [["e-a"], ["policy-a"], ["here"], ["a"], [shard]]


def test_role_in_all_pools_shows_everything(pools: dict[str, Pool]) -> None:
    user = User.objects.create(username="u")
    RoleGrant.objects.create(user=user, role=Role.VIEWER)
    for actor in (person(user, via=CONSOLE), program("job"), Actor("key", "api", role=Role.VIEWER)):
        assert [len(seen) for seen in everything(actor)] == [2, 2, 2, 2, 2]


def test_no_role_shows_nothing(pools: dict[str, Pool]) -> None:
    user = User.objects.create(username="u")
    assert everything(person(user, via=CONSOLE)) == [[], [], [], [], []]


def test_role_in_one_pool_is_not_a_role_in_all_pools(pools: dict[str, Pool]) -> None:
    user = User.objects.create(username="u")
    RoleGrant.objects.create(user=user, role=Role.OPERATOR, pool=pools["a"])
    actor = person(user, via=CONSOLE)
    assert may_somewhere(actor, Role.OPERATOR)
    assert not may_somewhere(actor, Role.ADMIN)
    assert may(actor, Role.OPERATOR, pools["a"])
    assert not may(actor, Role.VIEWER, pools["b"])
    assert not may(actor, Role.VIEWER)


def test_blocked_person_has_no_role(pools: dict[str, Pool]) -> None:
    user = User.objects.create(username="u", is_superuser=True, is_active=False)
    assert not may_somewhere(person(user, via=CONSOLE), Role.VIEWER)


def test_key_has_exactly_its_own_role() -> None:
    key = Actor("key", "api", role=Role.OPERATOR)
    assert may(key, Role.OPERATOR)
    assert not may(key, Role.ADMIN)
