"""Reads the policies that a person may see, with few queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import F, Q, QuerySet

from controlplane.platform.actor import Actor
from controlplane.platform.role import Role
from controlplane.platform.roles import RoleScope, may, seen_by
from controlplane.policies.models.policy import Policy
from controlplane.policies.models.policy_version import PolicyVersion

RAIL_LENGTH = 40
"""Number of versions on one page of the history."""


@dataclass(frozen=True, slots=True)
class PolicyAccess:
    """A policy with its pools and the actor's permissions on it."""

    policy: Policy
    pools: tuple[RoleScope, ...]
    """All pools of the policy, including pools that the actor may not see, because publishes affect all of them."""
    visible: tuple[RoleScope, ...]
    operated: tuple[RoleScope, ...]
    """Pools in which the actor may start trials."""
    may_draft: bool
    may_publish: bool

    @property
    def live(self) -> PolicyVersion | None:
        """Return the live version; None before the first publish."""
        return self.policy.live_version

    @property
    def live_number(self) -> int | None:
        """Return the number of the live version; None before the first publish."""
        return self.live.number if self.live else None


def visible_policies(actor: Actor) -> QuerySet[Policy]:
    """Return the policies of the pools that the actor may see, with their live versions."""
    policies = Policy.objects.select_related("live_version")
    if may(actor, Role.VIEWER):
        return policies
    # By a subquery: the join to the pools would repeat a policy that several of them follow.
    return policies.filter(pk__in=Policy.objects.filter(seen_by(actor, "pools__")).values("pk"))


def policies_of(actor: Actor) -> list[PolicyAccess]:
    """Return every policy that the actor may see: policies of visible pools, or all policies for actors who see all
    pools.
    """
    return [_access(policy, actor) for policy in _with_pools(visible_policies(actor))]


def policy_of(actor: Actor, slug: str) -> PolicyAccess:
    """Return one policy. Raises Policy.DoesNotExist if it does not exist or the actor may not see it."""
    policy = _with_pools(Policy.objects.all()).get(slug=slug)
    access = _access(policy, actor)
    if not access.visible and not may(actor, Role.VIEWER):
        raise Policy.DoesNotExist
    return access


def versions_of(policy: Policy, *, below: int | None = None) -> list[PolicyVersion]:
    """Return one page of the policy's versions, newest first. `below` limits the page to lower numbers."""
    versions = policy.versions.select_related("author").order_by("-number")
    if below is not None:
        versions = versions.filter(number__lt=below)
    return list(versions[: RAIL_LENGTH + 1])


def version_of(policy: Policy, number: int) -> PolicyVersion | None:
    """Return one version of the policy; None if the number is unknown."""
    return policy.versions.select_related("author").filter(number=number).first()


def open_drafts(policies: Sequence[Policy]) -> dict[int, list[PolicyVersion]]:
    """Return the drafts newer than the live version, by policy id, newest first, without their documents."""
    newer = Q(policy__live_version=None) | Q(number__gt=F("policy__live_version__number"))
    drafts = PolicyVersion.objects.filter(newer, policy__in=policies, published_at=None)
    by_policy: dict[int, list[PolicyVersion]] = {policy.pk: [] for policy in policies}
    for draft in (
        drafts.select_related("author").defer("routing_document", "automation_document").order_by("-number")[:1000]
    ):
        by_policy[draft.policy_id].append(draft)
    return by_policy


def _with_pools(policies: QuerySet[Policy]) -> QuerySet[Policy]:
    return policies.select_related("live_version__author").prefetch_related("pools")


def _access(policy: Policy, actor: Actor) -> PolicyAccess:
    pools = tuple(policy.pools.all())
    operated = tuple(pool for pool in pools if may(actor, Role.OPERATOR, pool))
    everywhere = may(actor, Role.OPERATOR)
    return PolicyAccess(
        policy,
        pools,
        tuple(pool for pool in pools if may(actor, Role.VIEWER, pool)),
        operated,
        may_draft=everywhere or bool(operated),
        may_publish=everywhere or (bool(pools) and operated == pools),
    )
