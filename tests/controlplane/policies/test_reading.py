"""Visibility of policies, and the base of a draft."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from controlplane.access.models.role_grant import RoleGrant
from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool
from controlplane.fleet.models.region import Region
from controlplane.fleet.ready_engines import ready_engines
from controlplane.platform.actor import CONSOLE, Actor, person, program
from controlplane.platform.role import Role
from controlplane.policies.models.policy import Policy
from controlplane.policies.publish import draft, publish_version, roll_back
from controlplane.policies.reading import RAIL_LENGTH, open_drafts, policies_of, policy_of, version_of, versions_of
from gateway.bus.bus import Bus

pytestmark = pytest.mark.django_db
ACTOR = program("test")


def make_person(role: Role | None, *pools: Pool) -> Actor:
    """Return a person with the role in these pools, or in all pools if none is given."""
    user = User.objects.create(username=f"{role}-{len(pools)}")
    for pool in (pools or (None,)) if role else ():
        RoleGrant.objects.create(user=user, role=role, pool=pool)
    return person(user, via=CONSOLE)


@pytest.fixture
def other(region: Region, policy: Policy) -> Pool:
    """Return a second pool with the same policy."""
    return Pool.objects.create(slug="other", name="Other", region=region, served_model="m", policy=policy)


def test_policy_is_visible_if_one_of_its_pools_is_visible(pool: Pool, other: Pool, policy: Policy) -> None:
    lonely = Policy.objects.create(slug="lonely", name="Lonely")
    access = policy_of(make_person(Role.VIEWER, pool), policy.slug)
    assert access.visible == (pool,)
    assert set(access.pools) == {pool, other}
    assert not access.may_draft
    assert [item.policy for item in policies_of(make_person(Role.VIEWER))] == [lonely, policy]
    stranger = make_person(None)
    assert policies_of(stranger) == []
    with pytest.raises(Policy.DoesNotExist):
        policy_of(stranger, policy.slug)


def test_publishing_requires_the_role_in_every_pool_and_drafting_in_one(
    pool: Pool, other: Pool, policy: Policy
) -> None:
    one, both = make_person(Role.OPERATOR, pool), make_person(Role.OPERATOR, pool, other)
    assert [policy_of(one, policy.slug).may_draft, policy_of(one, policy.slug).may_publish] == [True, False]
    assert policy_of(both, policy.slug).may_publish


def test_policy_without_pools_requires_a_role_in_all_pools(policy: Policy) -> None:
    assert policy_of(make_person(Role.OPERATOR), policy.slug).may_publish
    assert not policy_of(make_person(Role.VIEWER), policy.slug).may_draft


def test_draft_is_based_on_the_live_version_unless_its_author_began_earlier(policy: Policy, bus: Bus) -> None:
    assert draft(policy, {}, actor=ACTOR).based_on is None
    publish_version(draft(policy, {}, actor=ACTOR), instead_of=None, actor=ACTOR)
    publish_version(draft(policy, {"ttft_slo_s": 1}, actor=ACTOR), instead_of=2, actor=ACTOR)
    assert draft(policy, {}, actor=ACTOR).based_on == 3
    assert draft(policy, {}, actor=ACTOR, based_on=2).based_on == 2
    assert roll_back(policy, 2, instead_of=3, actor=ACTOR).based_on == 3


def test_open_drafts_are_newer_than_the_live_version(policy: Policy, bus: Bus) -> None:
    fresh = Policy.objects.create(slug="fresh", name="Fresh")
    draft(fresh, {}, actor=ACTOR)
    for number in range(1, 4):
        draft(policy, {"ttft_slo_s": number}, actor=ACTOR)
    publish_version(policy.versions.get(number=2), instead_of=None, actor=ACTOR)
    open_ones = open_drafts([policy, fresh])
    assert {pk: [item.number for item in drafts] for pk, drafts in open_ones.items()} == {policy.pk: [3], fresh.pk: [1]}


def test_history_is_paged(policy: Policy, bus: Bus) -> None:
    for _ in range(RAIL_LENGTH + 5):
        draft(policy, {}, actor=ACTOR)
    first = versions_of(policy)
    assert [first[0].number, len(first)] == [RAIL_LENGTH + 5, RAIL_LENGTH + 1]
    assert [version.number for version in versions_of(policy, below=6)] == [5, 4, 3, 2, 1]
    assert version_of(policy, 999) is None


def test_only_engines_in_the_ready_state_count(pool: Pool) -> None:
    for name, state in (("a", "ready"), ("b", "draining"), ("c", "maintenance")):
        Engine.objects.create(pool=pool, name=name, url=f"http://{name}", connect_url="x", desired_state=state)
    assert ready_engines([pool]) == 1
