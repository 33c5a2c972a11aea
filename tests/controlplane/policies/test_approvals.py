"""Approval by a second person: who may give it, when it counts, and which changes need none."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from controlplane.access.api_keys import create_api_key
from controlplane.access.models.role_grant import RoleGrant
from controlplane.fleet.models.pool import Pool
from controlplane.platform.actor import CONSOLE, Actor, machine, person, program
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.models.tenant import Tenant
from controlplane.platform.role import Role
from controlplane.platform.roles import NotAllowedError
from controlplane.policies.approvals import (
    CannotApproveError,
    NotApprovedError,
    approvals_of,
    approve,
    withdraw_approval,
)
from controlplane.policies.models.policy import Policy
from controlplane.policies.models.policy_approval import PolicyApproval
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.policies.publish import change_policy, draft, publish_version, roll_back
from gateway.bus.bus import Bus

ACTOR = program("test")
pytestmark = pytest.mark.django_db


def make_person(name: str, role: Role | None = Role.OPERATOR) -> Actor:
    user = User.objects.create(username=name)
    if role is not None:
        RoleGrant.objects.create(user=user, role=role)
    return person(user, via=CONSOLE)


@pytest.fixture
def ann(bus: Bus) -> Actor:
    return make_person("ann")


@pytest.fixture
def ben(bus: Bus) -> Actor:
    return make_person("ben")


@pytest.fixture
def version(policy: Policy, pool: Pool, ann: Actor) -> PolicyVersion:
    """Return Ann's draft of a policy that requires approval."""
    change_policy(policy, {"needs_approval": True}, actor=ann)
    return draft(policy, {}, actor=ann, message="mine")


def verbs() -> list[str]:
    return list(AuditEvent.objects.order_by("pk").values_list("verb", flat=True))


def test_unapproved_version_cannot_be_published(version: PolicyVersion, ann: Actor, ben: Actor) -> None:
    for actor in (ann, ben, ACTOR):
        with pytest.raises(NotApprovedError, match="other than ann, who wrote it"):
            publish_version(version, instead_of=None, actor=actor)
    version.refresh_from_db()
    assert version.published_at is None
    assert Policy.objects.get().live_version is None
    assert "policy.publish" not in verbs()


def test_second_person_approves_and_any_publisher_publishes(version: PolicyVersion, ann: Actor, ben: Actor) -> None:
    approve(version, actor=ben, why="read it")
    approve(version, actor=ben)
    publish_version(version, instead_of=None, actor=ann)
    assert Policy.objects.get().live_version == version
    assert verbs()[-2:] == ["policy.approve", "policy.publish"]
    event = AuditEvent.objects.get(verb="policy.approve")
    assert (event.actor_name, event.why, event.pool_slug, event.after["version"]) == ("ben", "read it", "chat", 1)


def test_authors_keys_and_people_who_cannot_publish_cannot_approve(
    version: PolicyVersion, ann: Actor, tenant: Tenant
) -> None:
    key, _ = create_api_key(tenant, "ci", actor=ACTOR, scopes=("manage",), role=Role.ADMIN)
    for actor in (ann, machine(key), ACTOR):
        with pytest.raises(CannotApproveError):
            approve(version, actor=actor)
    with pytest.raises(NotAllowedError):
        approve(version, actor=make_person("vic", Role.VIEWER))
    assert not PolicyApproval.objects.exists()


def test_approval_is_valid_for_one_version(version: PolicyVersion, policy: Policy, ann: Actor, ben: Actor) -> None:
    approve(version, actor=ben)
    other = draft(policy, {"ttft_slo_s": 1.0}, actor=ann)
    with pytest.raises(NotApprovedError):
        publish_version(other, instead_of=None, actor=ann)


def test_withdrawn_approval_does_not_count(version: PolicyVersion, ann: Actor, ben: Actor) -> None:
    approve(version, actor=ben)
    withdraw_approval(version, actor=ben, why="on second thought")
    with pytest.raises(NotApprovedError):
        publish_version(version, instead_of=None, actor=ann)
    with pytest.raises(CannotApproveError, match="nothing to withdraw"):
        withdraw_approval(version, actor=ben)
    assert verbs()[-1] == "policy.withdraw_approval"


def test_approval_lapses_if_its_author_loses_the_role(version: PolicyVersion, ann: Actor, ben: Actor) -> None:
    approve(version, actor=ben)
    RoleGrant.objects.filter(user=ben.user).update(role=Role.VIEWER)
    assert approvals_of([version]) == {version.pk: []}
    with pytest.raises(NotApprovedError):
        publish_version(version, instead_of=None, actor=ann)


def test_rollback_needs_no_approval(version: PolicyVersion, policy: Policy, ann: Actor, ben: Actor) -> None:
    approve(version, actor=ben)
    publish_version(version, instead_of=None, actor=ann)
    copy = roll_back(policy, version.number, instead_of=1, actor=ann)
    assert Policy.objects.get().live_version == copy


def test_only_admins_disable_the_approval_requirement(version: PolicyVersion, policy: Policy, ann: Actor) -> None:
    with pytest.raises(NotAllowedError, match="admin"):
        change_policy(policy, {"needs_approval": False}, actor=ann)
    assert Policy.objects.get().needs_approval
    change_policy(policy, {"needs_approval": False}, actor=make_person("root", Role.ADMIN))
    publish_version(version, instead_of=None, actor=ann)
    event = AuditEvent.objects.filter(verb="policy.change").latest("pk")
    assert (event.before["needs_approval"], event.after["needs_approval"]) == (True, False)
